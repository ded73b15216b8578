"""Writes a Llama with random weights, small enough for a CPU: model.py FOLDER LAYERS HIDDEN.

Weights are not written: vLLM makes them up (--load-format dummy). In the tokenizer each word of one
sentence is a token, and so is every byte. The rest of the vocabulary is filled with invented words: the
model says any of it with equal chance, and a token without text would reach no client.
"""

import json
import pathlib
import sys

from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

CONTEXT = 8192
VOCABULARY = 4096
SENTENCE = "the quick brown fox jumps over the lazy dog "


def tokenizer():
    made = Tokenizer(models.BPE())
    made.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    made.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=VOCABULARY,
        special_tokens=["<|bos|>", "<|eos|>"],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
    )
    made.train_from_iterator([SENTENCE * 50], trainer)
    made.add_tokens([f" word{number}" for number in range(VOCABULARY - made.get_vocab_size())])
    return made


def main(folder, layers, hidden):
    folder = pathlib.Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    tokenizer().save(str(folder / "tokenizer.json"))
    turn = "{% for m in messages %}{{ m['role'] }}: {{ m['content'] }}\n{% endfor %}assistant: "
    about_tokens = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "bos_token": "<|bos|>",
        "eos_token": "<|eos|>",
        "model_max_length": CONTEXT,
        "chat_template": turn,
    }
    about_model = {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "num_hidden_layers": int(layers),
        "hidden_size": int(hidden),
        "intermediate_size": int(hidden) * 11 // 4,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "hidden_act": "silu",
        "rms_norm_eps": 1e-5,
        "rope_theta": 10000.0,
        "max_position_embeddings": CONTEXT,
        "vocab_size": VOCABULARY,
        "tie_word_embeddings": False,
        "torch_dtype": "bfloat16",
        "bos_token_id": 0,
        "eos_token_id": 1,
    }
    (folder / "tokenizer_config.json").write_text(json.dumps(about_tokens, indent=1))
    (folder / "config.json").write_text(json.dumps(about_model, indent=1))


if __name__ == "__main__":
    main(*sys.argv[1:])
