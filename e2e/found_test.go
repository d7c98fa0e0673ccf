package e2e

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/plx-run/plx/internal/test/executable"
	"github.com/plx-run/plx/internal/test/testhosts"
)

// A trainer program that is installed on the hosts and named without a path
// gets server tasks, like a program that plx sends. If the hosts have
// different programs of this name, the launch reports the difference.
func TestServersOfAProgramOnPath(t *testing.T) {
	t.Parallel()
	b := newBench(t, testhosts.Options{Hosts: 2}).withPlx()
	file := b.ResourceFile("h1", "h2")
	program := read(t, testhosts.Binary(t, "github.com/plx-run/plx/examples/linear"))
	have := func(folder, host string, content []byte) {
		t.Helper()
		for _, h := range b.Hosts {
			path := filepath.Join(h.HomeDir, folder, "mytrainer")
			if h.Name != host {
				continue
			}
			if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o755), executable.Write(path, content, 0o755)); err != nil {
				t.Fatal(err)
			}
		}
	}
	have("both", "h1", program)
	have("both", "h2", program)
	have("mixed", "h1", program)
	have("mixed", "h2", []byte("#!/bin/sh\nexit 3\n"))
	have("other", "h1", []byte("#!/bin/sh\n"))
	have("other", "h2", []byte("#!/bin/sh\n"))
	const note = "note: mytrainer links plx's trainer on host h1 and not on host h2, so the job has no servers (--ps all)\n"
	for _, c := range []struct {
		folder, flags, args string
		servers             int
	}{
		{"both", "", "--arch ps --steps 21", 2},
		{"mixed", "--include h1", "--arch ps --steps 21", 1},
		{"other", "", "", 0},
	} {
		args := append([]string{"launch", "-v", "--hosts", file, "--path", "/root/" + c.folder}, strings.Fields(c.flags)...)
		res := b.want(0, append(append(args, "mytrainer"), strings.Fields(c.args)...)...)
		if got := strings.Count(res.stderr, "plx: ps:"); got != c.servers || strings.Contains(res.stderr, note) {
			t.Errorf("%s %s: %d servers, want %d:\n%s", c.folder, c.flags, got, c.servers, res.stderr)
		}
		if c.args != "" {
			contains(t, res.stdout, "worker:0 h1 | step 20 | loss ")
		}
	}
	res := b.want(3, "launch", "-v", "--hosts", file, "--path", "/root/mixed", "mytrainer", "--arch", "allreduce", "--steps", "21")
	contains(t, res.stderr, note)
}
