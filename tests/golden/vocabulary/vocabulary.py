"""Vocabularies without weights, unlike the default generator's: a byte-level one that llama.cpp splits by std::regex
(`tekken`), and a SentencePiece one that puts a space before every text. llama.cpp knows none of their chat templates.

  pip install gguf
  python vocabulary.py FOLDER
"""

import sys

import gguf


def writer(path, model):
    file = gguf.GGUFWriter(path, "llama")
    file.add_context_length(1024)
    file.add_embedding_length(32)
    file.add_block_count(1)
    file.add_feed_forward_length(32)
    file.add_head_count(1)
    file.add_layer_norm_rms_eps(1e-5)
    file.add_tokenizer_model(model)
    return file


def close(file):
    file.write_header_to_file()
    file.write_kv_data_to_file()
    file.write_tensors_to_file()
    file.close()


def byte_level(path):
    """The 256 bytes in GPT-2's alphabet, and the end of the text."""
    printable = [*range(33, 127), *range(161, 173), *range(174, 256)]
    others = iter(range(256, 512))
    alphabet = [chr(byte) if byte in printable else chr(next(others)) for byte in range(256)]
    file = writer(path, "gpt2")
    file.add_tokenizer_pre("tekken")
    # A space is Ġ and a line's end is Ċ. Some cross what a careless cut would part.
    merges = ["t h", "w o", "wo r", "wor d", "Ġ word", "Ċ Ċ", "Ġ i", "Ġi t"]
    file.add_token_list([*alphabet, *(merge.replace(" ", "") for merge in merges), "<|end|>"])
    end = 256 + len(merges)
    file.add_token_types([gguf.TokenType.NORMAL] * end + [gguf.TokenType.CONTROL])
    file.add_token_merges(merges)
    file.add_chat_template("{{ bos_token }}[{% for message in messages %}{{ message.content }}{% endfor %}]{{ eos_token }}")
    file.add_bos_token_id(end)
    file.add_eos_token_id(end)
    close(file)


def sentence_piece(path):
    """Bytes, a few pieces, and no key that says whether a space is added: it is."""
    pieces = ["▁", "w", "h", "o", "?", ".", "wh", "who", "▁who", "▁.", "▁▁"]
    file = writer(path, "llama")
    file.add_token_list(["<unk>", "<s>", "</s>", *(f"<0x{byte:02X}>" for byte in range(256)), *pieces])
    file.add_token_scores([0.0] * 259 + [float(number) for number in range(len(pieces))])
    kinds = [gguf.TokenType.UNKNOWN, gguf.TokenType.CONTROL, gguf.TokenType.CONTROL]
    file.add_token_types(kinds + [gguf.TokenType.BYTE] * 256 + [gguf.TokenType.NORMAL] * len(pieces))
    file.add_bos_token_id(1)
    file.add_eos_token_id(2)
    file.add_unk_token_id(0)
    file.add_chat_template("{{ raise_exception('only with documents') }}")
    close(file)


if __name__ == "__main__":
    byte_level(f"{sys.argv[1]}/byte_level.gguf")
    sentence_piece(f"{sys.argv[1]}/sentence_piece.gguf")
