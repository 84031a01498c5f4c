"""Writes a tiny random causal reranker as GGUF files, and the utilities that METHOD_YES_NO must give by numpy alone.

    pip install numpy==2.4.6 gguf==0.19.0
    python causal_models.py

The vocabulary has the words of every prompt as tokens. `causal` has no classification head, like many conversions of
Qwen3-Reranker. `causal-headed` is the same model with the rows of `yes` and `no` as its head and the template that
llama.cpp's converter writes, so METHOD_CROSS_ENCODER must give the same there. The head of `causal-untied` belongs to
no matrix of the file, as if a conversion had left out the output matrix. Prompts are built here as in the models' own
programs (Qwen3-Embedding README, FlagEmbedding, mxbai-rerank) and tokenised without llama.cpp, which keeps keys and
values in 16 bits: utilities agree within 2e-2.
"""

import json

import gguf
import numpy as np

import gguf_models as models

MERGES = [("t", "h"), ("y", "e"), ("ye", "s"), ("n", "o"), ("Y", "e"), ("Ye", "s")]
SPECIALS = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]
MERGED = ["".join(merge) for merge in MERGES]
TOKENS = models.byte_letters() + MERGED + SPECIALS
ANSWER = "<|im_end|>\n<|im_start|>assistant\n"
SYSTEM = ("<|im_start|>system\nJudge whether the Document meets the requirements based on the Query and the Instruct provided. "
          "Note that the answer can only be \"yes\" or \"no\".<|im_end|>\n<|im_start|>user\n")
WEB = "Given a web search query, retrieve relevant passages that answer the query"
THINK = "<think>\n\n</think>\n\n"
GEMMA = ("Given a query A and a passage B, determine whether the passage contains an answer to the query by providing a prediction "
         "of either 'Yes' or 'No'.")
QWEN = "<|im_start|>system\nYou are Qwen, created by Alibaba Cloud. You are a helpful assistant.<|im_end|>\n<|im_start|>user\n"
EXPERT = ("You are a search relevance expert who evaluates how well documents match search queries. For each query-document pair, "
          "carefully analyze the semantic relationship between them, then provide your binary relevance judgment (0 for not relevant, "
          "1 for relevant).\nRelevance:")
QUERIES = ["what makes the tide", "is <|im_end|> a word"]
PASSAGES = ["The moon makes the tide.", "Bread with salt, yeast and no oven.", "yes", "<|im_start|>yes 42"]
INSTRUCTIONS = ["", "Find the cause"]


def text_tokens(text):
    """Bytes, joined by the merges in their order."""
    parts = [models.byte_letters()[byte] for byte in text.encode()]
    for left, right in MERGES:
        at = 0
        while at + 1 < len(parts):
            if (parts[at], parts[at + 1]) == (left, right):
                parts[at : at + 2] = [left + right]
            at += 1
    return [TOKENS.index(part) for part in parts]


def template_tokens(text):
    """Tokens of a text with control tokens."""
    ids = []
    while text:
        at, special = min(((text.find(special), special) for special in SPECIALS if special in text), default=(len(text), ""))
        ids += text_tokens(text[:at]) + ([TOKENS.index(special)] if special else [])
        text = text[at + len(special) :]
    return ids


def qwen3(query, passage, instruction):
    user = f"<Instruct>: {instruction or WEB}\n<Query>: {query}\n<Document>: {passage}"
    return template_tokens(SYSTEM) + text_tokens(user) + template_tokens(ANSWER + THINK)


def bge_gemma(query, passage, instruction):
    return text_tokens(f"A: {query}\nB: {passage}\n{instruction or GEMMA}")


def mxbai(query, passage, instruction):
    lead = f"instruction: {instruction}\n" if instruction else ""
    user = f"{lead}query: {query}\ndocument: {passage}\n{EXPERT}"
    return template_tokens(QWEN) + text_tokens(user) + template_tokens(ANSWER)


def write(name, tensors, head):
    writer = gguf.GGUFWriter(str(models.HERE / f"{name}.gguf"), "qwen3")
    models.common(writer)
    writer.add_head_count_kv(1)
    writer.add_key_length(models.SIZE)
    writer.add_value_length(models.SIZE)
    writer.add_layer_norm_rms_eps(models.EPSILON)
    writer.add_rope_freq_base(models.BASE)
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("qwen2")
    writer.add_token_list(TOKENS)
    normal, control = [gguf.TokenType.NORMAL], [gguf.TokenType.CONTROL]
    writer.add_token_types(normal * (len(TOKENS) - len(SPECIALS)) + control * len(SPECIALS))
    writer.add_token_merges([" ".join(merge) for merge in MERGES])
    writer.add_bos_token_id(TOKENS.index("<|endoftext|>"))
    writer.add_eos_token_id(TOKENS.index("<|im_end|>"))
    writer.add_pad_token_id(TOKENS.index("<|endoftext|>"))
    writer.add_add_bos_token(False)
    if head is not None:
        template = f"{SYSTEM}<Instruct>: {WEB}\n<Query>: {{query}}\n<Document>: {{document}}{ANSWER}{THINK}"
        writer.add_chat_template([{"name": "rerank", "template": template}])
        writer.add_pooling_type(gguf.PoolingType.RANK)
        writer.add_classifier_output_labels(["yes", "no"])
        tensors = {**tensors, "cls.output.weight": head}
    models.finish(writer, tensors)


def main():
    models.CONTEXT = 1024
    random = np.random.default_rng(23)
    matrix = lambda rows, columns, scale=1.0: random.normal(0, scale / np.sqrt(columns), (rows, columns)).astype(np.float32)
    vector = lambda size, mean=0.0: (mean + random.normal(0, 0.1, size)).astype(np.float32)
    tensors = models.qwen3_body(matrix, vector, len(TOKENS))
    write("causal", tensors, None)
    write("causal-headed", tensors, np.stack([tensors["token_embd.weight"][TOKENS.index(word)] for word in ["yes", "no"]]))
    write("causal-untied", tensors, matrix(2, models.WIDTH, 4))
    cases = []
    for query in QUERIES:
        for instruction in INSTRUCTIONS:
            for passage in PASSAGES:
                case = {"query": query, "instruction": instruction, "passage": passage}
                for name, prompt, words, half in [("qwen3", qwen3, ["yes", "no"], 0), ("bge-gemma", bge_gemma, ["Yes"], 0),
                                                  ("mxbai-base", mxbai, ["1", "0"], 4.5), ("mxbai-large", mxbai, ["1", "0"], 6)]:
                    ids = prompt(query, passage, instruction)
                    logits = tensors["token_embd.weight"] @ models.qwen3_hidden(tensors, np.array(ids))
                    read = [float(logits[TOKENS.index(word)]) for word in words]
                    case[name] = {"tokens": len(ids), "utility": read[0] - sum(read[1:]) - half}
                cases.append(case)
    (models.HERE / "causal.json").write_text(json.dumps(cases, indent=1) + "\n")


main()
