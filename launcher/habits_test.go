package launcher

import (
	"strings"
	"testing"

	"github.com/plx-run/plx/envsync"
	"github.com/plx-run/plx/hostfile"
	"github.com/plx-run/plx/launcher/exit"
	"github.com/plx-run/plx/launcher/hosts"
	"github.com/plx-run/plx/launcher/placement"
)

// localhost is another machine for each host.
func TestReportH4LocalhostBesideOthers(t *testing.T) {
	host := func(line, addr string) *hosts.Host {
		parsed, err := hostfile.ParseLines([]string{line})
		if err != nil {
			t.Fatal(err)
		}
		return &hosts.Host{Resource: parsed[0], Facts: envsync.Facts{ServerAddr: addr}}
	}
	h2 := host("h2: cpu", "192.0.2.2")
	for _, addr := range []string{"127.0.0.1", "::1"} {
		err := reachable([]*hosts.Host{host("localhost: cpu*2 A=secret", addr), h2})
		if err == nil || exit.Code(err) != exit.CodeUsage || !strings.Contains(err.Error(), "host localhost: its data address "+addr+" reaches this host only") ||
			!strings.Contains(exit.Hint(err), `"localhost: cpu*2 addr=`) || strings.Contains(exit.Hint(err), "secret") {
			t.Errorf("%s: %v, hint %q", addr, err, exit.Hint(err))
		}
	}
	for what, used := range map[string][]*hosts.Host{
		"after the hint": {host("localhost: cpu addr=192.0.2.1", "127.0.0.1"), h2}, "alone": {host("localhost", "127.0.0.1")},
		"ports of this machine": {host("localhost:2201:", "127.0.0.1"), host("localhost:2202:", "127.0.0.1")},
		"embedded":              {{Facts: envsync.Facts{ServerAddr: "127.0.0.2"}, Embedded: true}, h2}, "no address": {host("h3", ""), h2},
	} {
		if err := reachable(used); err != nil {
			t.Errorf("%s: %v", what, err)
		}
	}
}

// A launcher as the program is refused with the command to use.
func TestReportH5LauncherAsProgram(t *testing.T) {
	for command, want := range map[string]string{
		"torchrun --nproc_per_node=2 train.py --lr 0.1": "plx launch [FLAGS] python3 train.py --lr 0.1", "/usr/bin/torchrun --nnodes 2 -m pkg.train a": "plx launch [FLAGS] python3 -m pkg.train a",
		"python3 -m torch.distributed.run --nproc_per_node 2 train.py": "plx launch [FLAGS] python3 train.py", "python -u -m torch.distributed.launch train.py 'x": `python3 train.py ''\''x'`,
		"accelerate launch --num_processes 2 train.py": "plx launch [FLAGS] python3 train.py", "torchrun": "python3 SCRIPT",
		"accelerate env": "", "python3 train.py torchrun": "", "mpirun -n 2 ./a": "", "python3 -m pkg": "",
	} {
		words := strings.Fields(command)
		c := Config{Program: words[0], Args: words[1:]}
		err := c.checkLauncher()
		if (err != nil) != (want != "") || err != nil && (exit.Code(err) != exit.CodeUsage || !strings.HasSuffix(exit.Hint(err), want)) {
			t.Errorf("%s: %v, hint %q, want %q", command, err, exit.Hint(err), want)
		}
	}
	if err := (&Config{Program: "torchrun", Args: []string{"train.py"}}).validate(); err == nil || !strings.HasPrefix(err.Error(), "torchrun would start") {
		t.Errorf("before connecting: %v", err)
	}
}

// Inside a script it is noted.
func TestReportH5LauncherInScript(t *testing.T) {
	t.Chdir(t.TempDir())
	makeFiles(t, map[string]string{"run.sh": "#!/bin/bash\n# torchrun does it\nset -e\nexec torchrun --nproc_per_node=2 train.py\n", "run": "#!/usr/bin/env bash\npip install deepspeed\naccelerate launch x.py\n",
		"bare.sh": "torchrun x.py\n", "quiet.sh": "#!/bin/sh\necho torchrun --x\npip install torchrun-x deepspeed # torchrun\nexec python3 train.py\n", "train.py": "#!/usr/bin/env python3\n# torchrun train.py\n"})
	for _, c := range []struct {
		program string
		args    []string
		where   string // that starts what; "": nothing does
	}{
		{"./run.sh", nil, "./run.sh:4 starts torchrun"}, {"./bare.sh", nil, "./bare.sh:1 starts torchrun"}, {"bash", []string{"run.sh"}, "run.sh:4 starts torchrun"}, {"./run", nil, "./run:3 starts accelerate"},
		{"bash", []string{"-c", "torchrun --nproc_per_node=2 train.py"}, "the line for bash starts torchrun"}, {"sh", []string{"-c", "python3 -m torch.distributed.run x.py"}, "the line for sh starts torch.distributed.run"},
		{"bash", []string{"-c", "cd x && exec /opt/bin/torchrun x.py"}, "starts torchrun"}, {"sh", []string{"-c", "mpirun -n 2 a"}, "starts mpirun"}, {"sh", []string{"-c", "deepspeed train.py"}, "starts deepspeed"},
		{"./quiet.sh", nil, ""}, {"./train.py", nil, ""}, {"python3", []string{"train.py"}, ""}, {"sh", []string{"-c", "python3 train.py"}, ""},
	} {
		cfg := Config{Program: c.program, Args: c.args}
		notes := strings.Join(foreignNotes(cfg, placement.Placement{}, nil), "|")
		if (notes != "") != (c.where != "") || !strings.Contains(notes, c.where) {
			t.Errorf("%s %q: notes %q, want %q", c.program, c.args, notes, c.where)
		}
	}
}
