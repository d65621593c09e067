"""Write a Llama that always answers one sentence: its weights are constructed, not trained.

Attention and MLP are zero, so what the last layer sees is the embedding of the last token, and
the head turns that into the next word of the sentence. Run by the interpreter that serves:
`python tiny_llama.py FOLDER`.
"""

import itertools
import sys

import torch
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

SENTENCE = "This model answers every request with one sentence ."
SPECIAL = ["<unk>", "<end>", "<user>", "<assistant>"]
WORDS = [*SPECIAL, *SENTENCE.split()]
TEMPLATE = "{% for message in messages %}<user> {{ message['content'] }} {% endfor %}<assistant>"


def write(folder: str) -> None:
    """Write tokenizer and weights."""
    ids = {word: number for number, word in enumerate(WORDS)}
    tokenizer = Tokenizer(models.WordLevel(ids, unk_token="<unk>"))
    tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        unk_token="<unk>",
        eos_token="<end>",
        pad_token="<end>",
        chat_template=TEMPLATE,
    ).save_pretrained(folder)
    size = 16
    model = LlamaForCausalLM(
        LlamaConfig(
            vocab_size=size,
            hidden_size=size,
            intermediate_size=size,
            num_hidden_layers=1,
            num_attention_heads=2,
            max_position_embeddings=4096,
            bos_token_id=None,
            eos_token_id=ids["<end>"],
            pad_token_id=ids["<end>"],
            tie_word_embeddings=False,
        )
    )
    with torch.no_grad():
        for name, weight in model.named_parameters():
            if "norm" not in name:
                weight.zero_()
        model.model.embed_tokens.weight.copy_(torch.eye(size))
        chain = [ids["<assistant>"], *(ids[word] for word in SENTENCE.split()), ids["<end>"]]
        for before, after in itertools.pairwise(chain):
            model.lm_head.weight[after, before] = 100.0
    model.save_pretrained(folder)


if __name__ == "__main__":
    write(sys.argv[1])
