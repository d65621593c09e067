NAME = "eager"
