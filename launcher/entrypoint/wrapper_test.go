package entrypoint

import (
	"strings"
	"testing"

	"github.com/plx-run/plx/launcher/exit"
)

// The checks apply to the command that a wrapper such as nice runs, as if it
// were the program.
func TestReportV3Wrappers(t *testing.T) {
	t.Chdir(t.TempDir())
	makeVenv(t, "env")
	for command, want := range map[string]string{
		"env X=1 torchrun train.py":                                        "leave torchrun and its options out: plx launch [FLAGS] env X=1 python3 train.py",
		"env -i -u torch A=/x/y -- torchrun train.py":                      "plx launch [FLAGS] env -i -u torch A=/x/y -- python3 train.py",
		"numactl -N 0 torchrun --nproc_per_node 2 train.py":                "plx launch [FLAGS] numactl -N 0 python3 train.py",
		"numactl --membind=0 --cpunodebind all accelerate launch train.py": "numactl --membind=0 --cpunodebind all python3 train.py",
		"nohup nice -n 10 ionice -c best-effort -n 0 torchrun -m a.b":      "nohup nice -n 10 ionice -c best-effort -n 0 python3 -m a.b",
		"taskset -c 0-3,8 torchrun train.py":                               "taskset -c 0-3,8 python3 train.py",
		"taskset 0xff torchrun train.py":                                   "taskset 0xff python3 train.py",
		"stdbuf -oL -e L torchrun train.py":                                "stdbuf -oL -e L python3 train.py",
		"/usr/bin/time -v -o log torchrun train.py":                        "/usr/bin/time -v -o log python3 train.py",
		"timeout -k 5 1h torchrun train.py":                                "timeout -k 5 1h python3 train.py",
		"nsys profile -o out -t cuda,nvtx torchrun train.py":               "nsys profile -o out -t cuda,nvtx python3 train.py",
		"numactl -N 0 python3 -m torch.distributed.run train.py":           "numactl -N 0 python3 train.py",
		"python3 -u -mtorch.distributed.launch train.py":                   "plx launch [FLAGS] python3 train.py",
		"python3 /opt/bin/torchrun train.py":                               "plx launch [FLAGS] python3 train.py",
		"env/bin/torchrun train.py":                                        "plx launch [FLAGS] --venv env python3 train.py",
		"env/bin/python -m torch.distributed.run train.py":                 "plx launch [FLAGS] --venv env python3 train.py",
		"uv run torchrun --nnodes 1 train.py":                              "leave uv run, torchrun and its options out: plx launch [FLAGS] --venv .venv python3 train.py",
		"uv --project x run --with deepspeed torchrun train.py":            "--venv .venv python3 train.py",
		"env A=1 uv run accelerate launch train.py":                        "--venv .venv python3 train.py",
		"poetry run torchrun train.py":                                     `--venv "$(poetry env info -p)" python3 train.py`,
		"pipenv run python -m torch.distributed.run train.py":              `--venv "$(pipenv --venv)" python3 train.py`,
		"conda run -n torchrun --no-capture-output torchrun train.py":      "leave conda run, torchrun and its options out: plx launch [FLAGS] --venv DIR python3 train.py",
		"conda run -n accelerate python train.py":                          "",
		"uv pip install torchrun":                                          "",
		"nohup mytool torchrun":                                            "",
		"env":                                                              "",
		"nice -n":                                                          "",
		"uv run":                                                           "",
		"python3 -W ignore train.py torchrun":                              "",
	} {
		words := strings.Fields(command)
		err := Source{Program: words[0], Args: words[1:]}.Check()
		if (err != nil) != (want != "") || err != nil && (exit.Code(err) != exit.CodeUsage || !strings.HasSuffix(exit.Hint(err), want)) {
			t.Errorf("%s: %v, hint %q, want %q", command, err, exit.Hint(err), want)
		}
	}
}

// A wrapper such as "uv run" gets a note. The script that a wrapper runs is
// checked as without the wrapper.
func TestReportV3WrappedPrograms(t *testing.T) {
	t.Chdir(t.TempDir())
	makeFiles(t, map[string]string{"train.py": "import torch\n", "run.sh": "torchrun x.py\n"})
	for command, want := range map[string]string{
		"uv run train.py --lr 1":          "note: uv run uses an environment on each host, which must have uv; to send the one of this machine: plx launch --venv .venv python3 train.py --lr 1",
		"conda run -n x python train.py":  "note: conda run uses an environment on each host, which must have conda; to send a virtual environment of this machine: plx launch --venv DIR python train.py",
		"numactl -N 0 deepspeed train.py": "each worker runs deepspeed",
		"nohup bash run.sh":               "run.sh:1 starts torchrun",
		"env A=1 python3 train.py":        "sees its host",
		"numactl -N 0 python3 other.py":   "",
	} {
		words := strings.Fields(command)
		p, err := resolve(t, Source{Program: words[0], Args: words[1:], Copy: []string{"train.py", "run.sh"}})
		got := strings.Join(p.Notes, "|")
		switch {
		case err != nil:
			got = err.Error()
		case p.Launcher != "" && p.Where == "":
			got += "each worker runs " + p.Launcher
		case p.Launcher != "":
			got += p.Where + " starts " + p.Launcher
		case p.SeesAllDevices && got == "":
			got = "sees its host"
		}
		if !strings.HasPrefix(got, want) || (got == "") != (want == "") {
			t.Errorf("%s: %q, want %q", command, got, want)
		}
	}
	if _, err := resolve(t, Source{Program: "env", Args: []string{"A=1", "python3", "train.py"}}); err == nil || !strings.Contains(exit.Hint(err), "add --workdir .") {
		t.Errorf("a script that stays here: %v", err)
	}
}
