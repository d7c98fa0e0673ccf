//go:build linux

package waits

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/plx-run/plx/launcher/protocol"
)

// Places of stacks as Python and Go write them. Python's called functions come
// from the source line.
func TestPlaces(t *testing.T) {
	dir := t.TempDir()
	train := filepath.Join(dir, "train.py")
	const source = "import time\n" +
		"def main():\n" +
		"    dist.all_reduce(torch.ones(3))\n" + // 3
		"    if (ready and not time.sleep(600)):\n" +
		"        loss = model(next(batches))\n" +
		"    for batch in loader:\n" + // 6
		"        x = a @ b\n"
	if err := os.WriteFile(train, []byte(source), 0o600); err != nil {
		t.Fatal(err)
	}
	pid := os.Getpid()
	frame := func(file string, line int, function string) string {
		return fmt.Sprintf("  File %q, line %d in %s\n", file, line, function)
	}
	const torch = "/x/lib/python3.12/site-packages/torch/"
	process := func(pid int, name string, frames ...string) string {
		return fmt.Sprintf("\nPython, process %d (%s):\nThread 0x7f (most recent call first):\n  File \"/usr/lib/python3.12/threading.py\", line 7 in run\n\nCurrent thread 0x7e (most recent call first):\n%s", pid, name, strings.Join(frames, ""))
	}
	python := func(frames ...string) string { return process(pid, "python3", frames...) }
	end := frame(train, 90, "<module>") + frame("<frozen runpy>", 88, "_run_code")
	reduce := python(frame(torch+"distributed/c10d.py", 2501, "all_reduce"), frame(torch+"c10d_logger.py", 83, "wrapper"), frame(train, 3, "main"), end)
	for name, c := range map[string]struct {
		text string
		want []string
	}{
		"a function behind a decorator":     {reduce, []string{"all_reduce (train.py:3)"}},
		"a function that is not Python":     {python(frame(train, 4, "main"), end), []string{"time.sleep (train.py:4)"}},
		"an operator":                       {python(frame(torch+"module.py", 7, "_call_impl"), frame(train, 5, "main"), end), []string{"_call_impl (train.py:5)"}},
		"a line without a call":             {python(frame(torch+"dataloader.py", 7, "_try_get"), frame(torch+"dataloader.py", 9, "__next__"), frame(train, 6, "main"), end), []string{"__next__ (train.py:6)"}},
		"a line without any call":           {python(frame(train, 7, "main"), end), []string{"main (train.py:7)"}},
		"two functions":                     {python(frame(train, 5, "main"), end), []string{"model or next (train.py:5)"}},
		"a line that is not there":          {python(frame(train, 70, "main"), end), []string{"main (train.py:70)"}},
		"a file that is not there":          {python(frame(torch+"c10d.py", 1, "barrier"), frame("/nowhere/at.py", 3, "main"), end), []string{"barrier (at.py:3)"}},
		"a folder":                          {python(frame(dir, 3, "main"), end), []string{"main (" + filepath.Base(dir) + ":3)"}},
		"a program of an installed package": {python(frame(torch+"run.py", 3, "wait"), frame(torch+"run.py", 1, "<module>")), []string{"wait (run.py:3)"}},
		"a launcher and its children":       {process(1, "torchrun", frame(torch+"run.py", 3, "wait"), frame(torch+"run.py", 1, "<module>")) + reduce + reduce, []string{"all_reduce (train.py:3)"}},
		"no stacks":                         {"\nprocess 12 (train), child of 1\n  first thread: read\n", nil},
		"a step of the trainer": {"\nGoroutines:\ngoroutine 7 [chan send]:\nexample.com/a.(*Loader).run(0x1)\n\t/home/ann/load.go:12 +0x1\n\n" +
			"goroutine 1 [select, 2 minutes]:\ngithub.com/plx-run/plx/trainer/exchange.wait(0x1)\n\t/x/c.go:1 +0x1\ngithub.com/plx-run/plx/trainer.(*Session).Step(0x1, {0x2})\n\t/x/s.go:9 +0x1\nmain.train({0x1}, 0x2)\n\t/home/ann/main.go:44 +0x1d\n",
			[]string{"trainer.(*Session).Step (main.go:44)", "chan send (load.go:12)"}},
		"only main": {"\nGoroutines:\ngoroutine 1 [sync.Mutex.Lock]:\nsync.(*Mutex).Lock(...)\n\t/go/mutex.go:1\nmain.main()\n\t/home/ann/main.go:20 +0x1d\n", []string{"sync.(*Mutex).Lock (main.go:20)"}},
	} {
		if got := Places(c.text); !slices.Equal(got, c.want) {
			t.Errorf("%s: %q, want %q", name, got, c.want)
		}
	}
	if got := KernelPlaces([]protocol.Process{
		{PID: 1, Name: "bash", Threads: []protocol.Thread{{Wait: protocol.OnChild}}},
		{PID: 2, Parent: 1, Name: "sleep", Threads: []protocol.Thread{{Wait: protocol.Sleeps}}},
		{PID: 3, Parent: 1, Name: "sleep", Threads: []protocol.Thread{{Wait: protocol.Sleeps}}},
		{PID: 4, Parent: 1, Name: "gone"},
	}); !slices.Equal(got, []string{"sleep: sleeps"}) {
		t.Errorf("of the kernel: %q", got)
	}
}
