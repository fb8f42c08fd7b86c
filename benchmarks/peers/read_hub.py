"""What `transformers` computes of a folder for the Hub: logits and greedy texts of recordings, each by itself.

python read_hub.py FOLDER GIVEN.npz OUTPUTS.npz      GIVEN.npz: waveforms float32 [samples] as 0, 1, …; for Whisper
                                                     tokens int [tokens] as "tokens/0", …, and features
                                                     [bins, frames] as "features/0", … if they are not to be computed

OUTPUTS.npz: "logits/0" float32 [frames or tokens, classes], …; "texts", the texts; "vocabulary", the pieces' names.
"""

import json
import sys

import numpy as np
import torch
import transformers


def main(folder: str, given: str, target: str) -> None:
    config = transformers.AutoConfig.from_pretrained(folder)
    extractor = transformers.AutoFeatureExtractor.from_pretrained(folder)
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    whisper = config.model_type == "whisper"
    kind = transformers.AutoModelForSpeechSeq2Seq if whisper else transformers.AutoModelForCTC
    model, loaded = kind.from_pretrained(folder, output_loading_info=True)
    if type(model).__name__ != config.architectures[0]:
        sys.exit(f"{folder} is a {type(model).__name__}, and says {config.architectures[0]}")
    model.eval()

    outputs = {}
    texts = []
    with np.load(given, allow_pickle=False) as arrays, torch.no_grad():
        for number in range(sum(name.isdecimal() for name in arrays.files)):
            inputs = (
                {"input_features": torch.tensor(arrays[f"features/{number}"])[None]}
                if f"features/{number}" in arrays
                else extractor(arrays[str(number)], sampling_rate=16_000, return_tensors="pt")
            )
            if whisper:
                tokens = torch.tensor(arrays[f"tokens/{number}"][None].astype(np.int64))
                logits = model(**inputs, decoder_input_ids=tokens).logits
                written = model.generate(**inputs)
                texts.append(tokenizer.batch_decode(written, skip_special_tokens=True)[0].strip())
            else:
                logits = model(**inputs).logits
                texts.append(tokenizer.batch_decode(logits.argmax(-1))[0].strip())
            outputs[f"logits/{number}"] = logits[0].numpy()

    about = {
        "texts": texts,
        "missing": sorted(loaded["missing_keys"]),
        "unexpected": sorted(loaded["unexpected_keys"]),
        "vocabulary": tokenizer.get_vocab(),
        "pad": tokenizer.pad_token_id,
    }
    np.savez(target, about=json.dumps(about), **outputs)


if __name__ == "__main__":
    main(*sys.argv[1:])
