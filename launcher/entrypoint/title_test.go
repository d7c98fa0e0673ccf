package entrypoint

import (
	"path/filepath"
	"strings"
	"testing"
)

// A job is named after its script, not after the interpreter.
func TestReportT3Title(t *testing.T) {
	for line, want := range map[string]string{
		"./train":                                     "train",
		"./train.sh -x":                               "train",
		"python3 train.py":                            "train",
		"/usr/bin/python3.11 -u src/train.py":         "train",
		"python3 -X dev train.py --m=1":               "train",
		"python3 train.py -m other":                   "train",
		"python3 -m pkg.train --lr 1":                 "train",
		"python3 -m pkg":                              "pkg",
		"python3 pkg/__main__.py":                     "pkg",
		"python3 -m pkg.__main__":                     "pkg",
		"python3 -c pass":                             "python3",
		"python3":                                     "python3",
		"bash -c :":                                   "bash",
		"bash run.sh train.py":                        "run",
		"sh -e -x scripts/run.sh":                     "run",
		"torchrun train.py":                           "train",
		"torchrun --nproc-per-node 2 a/train.py -m x": "train",
		"torchrun -m pkg.train":                       "train",
		"python3 -m torch.distributed.run --nnodes 2 train.py": "train",
		"accelerate launch --num_processes 2 train.py":         "train",
		"deepspeed train.py":                                   "train",
		"mpirun -np 2 python3 train.py":                        "train",
		"mpirun":                                               "mpirun",
		"env X=1 python3 train.py":                             "train",
		"env -u Y X=1 ./train":                                 "train",
		"env X=1":                                              "env",
		"env X=1 bash -c :":                                    "bash",
		"env X=1 torchrun train.py":                            "train",
		"nice -n 5 ./train":                                    "train",
		"taskset 0xff ./train":                                 "train",
		"timeout -k 5s 10m ./train time":                       "train",
		"uv run --with torch train.py":                         "train",
		"uv run train":                                         "train",
		"conda run -n name python train.py":                    "train",
		"hostname":                                             "hostname",
		"Rscript fit.R":                                        "fit",
	} {
		words := strings.Fields(line)
		if got := Title(words[0], words[1:]); got != want {
			t.Errorf("%s: %q, want %q", line, got, want)
		}
	}
	t.Chdir(t.TempDir())
	here, err := filepath.Abs(".")
	if got := Title(".", nil); err != nil || got != filepath.Base(here) {
		t.Errorf(".: %q in %s, %v", got, here, err)
	}
}
