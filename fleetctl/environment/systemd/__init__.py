"""systemd units: what they give their service, and exact edits through files of ours."""
