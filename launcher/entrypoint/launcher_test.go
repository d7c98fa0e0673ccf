package entrypoint

import (
	"strings"
	"testing"

	"github.com/plx-run/plx/launcher/exit"
)

// A launcher such as torchrun as the program is an error, and the hint is the
// command without it.
func TestReportH5LauncherAsProgram(t *testing.T) {
	for command, want := range map[string]string{
		"torchrun --nproc_per_node=2 train.py --lr 0.1": "plx launch [FLAGS] python3 train.py --lr 0.1", "/usr/bin/torchrun --nnodes 2 -m pkg.train a": "plx launch [FLAGS] python3 -m pkg.train a",
		"python3 -m torch.distributed.run --nproc_per_node 2 train.py": "plx launch [FLAGS] python3 train.py", "python -u -m torch.distributed.launch train.py 'x": `python3 train.py ''\''x'`,
		"accelerate launch --num_processes 2 train.py": "plx launch [FLAGS] python3 train.py", "torchrun": "python3 SCRIPT",
		"accelerate env": "", "python3 train.py torchrun": "", "mpirun -n 2 ./a": "", "python3 -m pkg": "",
	} {
		words := strings.Fields(command)
		err := Source{Program: words[0], Args: words[1:]}.Check()
		if (err != nil) != (want != "") || err != nil && (exit.Code(err) != exit.CodeUsage || !strings.HasSuffix(exit.Hint(err), want)) {
			t.Errorf("%s: %v, hint %q, want %q", command, err, exit.Hint(err), want)
		}
	}
}

// A launcher that a script starts is reported in Program.Launcher.
func TestReportH5LauncherInScript(t *testing.T) {
	t.Chdir(t.TempDir())
	makeFiles(t, map[string]string{"run.sh": "#!/bin/bash\n# torchrun does it\nset -e\nexec torchrun --nproc_per_node=2 train.py\n", "run": "#!/usr/bin/env bash\npip install deepspeed\naccelerate launch x.py\n",
		"bare.sh": "torchrun x.py\n", "quiet.sh": "#!/bin/sh\necho torchrun --x\npip install torchrun-x deepspeed # torchrun\nexec python3 train.py\n", "train.py": "#!/usr/bin/env python3\n# torchrun train.py\n"})
	for _, c := range []struct {
		program string
		args    []string
		where   string // script and line that start the launcher; "" if none does
	}{
		{"./run.sh", nil, "./run.sh:4 starts torchrun"}, {"./bare.sh", nil, "./bare.sh:1 starts torchrun"}, {"bash", []string{"run.sh"}, "run.sh:4 starts torchrun"}, {"./run", nil, "./run:3 starts accelerate"},
		{"bash", []string{"-c", "torchrun --nproc_per_node=2 train.py"}, "the line for bash starts torchrun"}, {"sh", []string{"-c", "python3 -m torch.distributed.run x.py"}, "the line for sh starts torch.distributed.run"},
		{"bash", []string{"-c", "cd x && exec /opt/bin/torchrun x.py"}, "starts torchrun"}, {"sh", []string{"-c", "mpirun -n 2 a"}, "starts mpirun"}, {"sh", []string{"-c", "deepspeed train.py"}, "starts deepspeed"},
		{"./quiet.sh", nil, ""}, {"./train.py", nil, ""}, {"python3", []string{"train.py"}, ""}, {"sh", []string{"-c", "python3 train.py"}, ""},
	} {
		name, where := Source{Program: c.program, Args: c.args}.code().launcher()
		got := ""
		if name != "" {
			got = where + " starts " + name
		}
		if !strings.HasSuffix(got, c.where) || (got == "") != (c.where == "") {
			t.Errorf("%s %q: %q, want %q", c.program, c.args, got, c.where)
		}
	}
}
