package entrypoint

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// Only a program that selects its device by LOCAL_RANK gets to see all devices
// of its host.
func TestChoosesDevice(t *testing.T) {
	t.Chdir(t.TempDir())
	for name, text := range map[string]string{
		"train.py":     "import os, torch.distributed as dist\n",
		"trainer.py":   "from transformers import Trainer\n",
		"rank.py":      "device = int(os.environ['LOCAL_RANK'])\n",
		"env.py":       "import os, json; json.dump(dict(os.environ))\n",
		"knows.py":     "import torch\nprint(os.environ['CUDA_VISIBLE_DEVICES'])\n",
		"pkg/train.py": "import torch\n",
		"deep/x.py":    "import torch\n",
		"run.sh":       "#!/bin/sh\nset -e\nexec python3 -u train.py\n",
		"other.sh":     "#!/bin/sh\nexec python3 env.py\n",
		"tool":         "#!/usr/bin/env python3\nimport lightning\n",
		"binary":       "\x7fELF torch",
	} {
		if err := errors.Join(os.MkdirAll(filepath.Dir(name), 0o755), os.WriteFile(name, []byte(text), 0o644)); err != nil {
			t.Fatal(err)
		}
	}
	for command, want := range map[string]bool{
		"python3 train.py": true, "python3 -u trainer.py a": true, "/usr/bin/python3.11 rank.py": true, "./train.py": true,
		"python3 env.py": false, "python3 knows.py": false, "python3 missing.py": false, "python3": false,
		"python3 -m pkg.train": true, "python3 -m json.tool": false, "python3 x.py": true, "pypy3 -c 'import torch'": true,
		"python3 -c 'print(1)'": false, "./tool": true, "./binary": false, "missing": false, "./missing": false,
		"./run.sh": true, "bash run.sh a": true, "sh -e other.sh": false, "sh missing.sh": false, "./train.py --x": true,
		"bash -c 'exec python3 a --local_rank=$LOCAL_RANK'": true, "sh -c 'exec python3 train.py'": true, "sh -c env": false,
		"torchic": false, "env torch": false,
	} {
		words := strings.Fields(command)
		if got := (Source{Program: words[0], Args: words[1:], Workdir: "deep"}).code().choosesDevice(); got != want {
			t.Errorf("%s: %v, want %v", command, got, want)
		}
	}
}
