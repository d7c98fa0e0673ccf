//go:build linux

package waits

import (
	"slices"
	"strings"
	"testing"
)

func TestExcerpt(t *testing.T) {
	const python = "worker:2, 2026\n\nprocess 12 (python3), child of 1\n  first thread: lock\n\nPython, process 12 (python3):\n" +
		"Thread 0x00007f (most recent call first):\n  File \"/usr/lib/python3/threading.py\", line 7 in run\n\n" +
		"Current thread 0x00007e (most recent call first):\n  File \"/home/ann/loader.py\", line 31 in fetch\n  File \"train.py\", line 90 in <module>\n" +
		"\nPython, process 14 (pt_data_worker):\nThread 0x00007e (most recent call first):\n  File \"/a/data.py\", line 3 in __getitem__\n  File \"<string>\", line 1 in <module>\n"
	const golang = "worker:1, 2026\n\nprocess 12 (train), child of 1\n\nGoroutines:\ngoroutine 9 [running]:\nruntime/debug.Stack()\n\t/usr/stack.go:26 +0x5e\ngithub.com/plx-run/plx/trainer.answer()\n\t/x/y.go:1 +0x1\n\n" +
		"goroutine 1 [chan receive, 2 minutes]:\nmain.main()\n\t/home/ann/main.go:20 +0x1d\n\n" +
		"goroutine 18 [select (no cases), 2 minutes]:\nmain.(*job).train(0xc000, {0x1, 0x2})\n\t/home/ann/main.go:44 +0x1d\ngithub.com/plx-run/plx/trainer.run()\n\t/x/z.go:1 +0x1\nmain.start(...)\n\t/home/ann/main.go:30 +0x1d\ncreated by main.main in goroutine 1\n\t/home/ann/main.go:19 +0x2\n"
	for _, c := range []struct {
		name, text string
		want       []string
	}{
		{"python", python, []string{
			"python3 (pid 12): loader.py:31 in fetch, called from train.py:90 in <module>",
			"pt_data_worker (pid 14): data.py:3 in __getitem__, called from <string>:1 in <module>"}},
		{"go", golang, []string{
			"goroutine 18 [select (no cases), 2 minutes]: main.go:44 in main.(*job).train, called from main.go:30 in main.start",
			"goroutine 1 [chan receive, 2 minutes]: main.go:20 in main.main"}},
		{"neither", "worker:0, 2026\n\nprocess 12 (train), child of 1\n  first thread: read\n", nil},
		{"nothing", "", nil},
	} {
		if got := Excerpt(c.text); !slices.Equal(got, c.want) {
			t.Errorf("%s: %q, want %q", c.name, got, c.want)
		}
	}
	long := Excerpt(strings.ReplaceAll(strings.Repeat(python, 20), "fetch", strings.Repeat("é", 1<<10)))
	if len(long) != maxExcerpt || len(long[0]) > maxWidth+4 || !strings.HasSuffix(long[0], " ...") {
		t.Errorf("%d lines, %q", len(long), long[0])
	}
}

func TestTraining(t *testing.T) {
	const step = "goroutine 1 [select]:\ngithub.com/plx-run/plx/trainer/exchange/client.(*Client).wait(0x1)\n\t/x/c.go:1 +0x1\n" +
		"github.com/plx-run/plx/trainer.(*Session).Step(0x1, {0x2})\n\t/x/s.go:9 +0x1\nmain.train({0x1}, 0x2)\n\t/home/ann/main.go:44 +0x1d\n" +
		"github.com/plx-run/plx/trainer.Main(0x1)\n\t/x/m.go:1 +0x1\nmain.main()\n\t/home/ann/main.go:9 +0x1\n"
	const loader = "goroutine 7 [chan send]:\nexample.com/images.(*Loader).run(0x1)\n\t/home/ann/images/load.go:12 +0x1\ncreated by example.com/images.Open in goroutine 1\n\t/home/ann/images/load.go:5 +0x1\n"
	const own = "goroutine 1 [IO wait]:\ninternal/poll.(*FD).Read(0x1)\n\t/go/fd.go:1 +0x1\nnet/http.Get({0x1})\n\t/go/h.go:1 +0x1\nmain.fetch(0x2)\n\t/home/ann/main.go:80 +0x1\n" +
		"main.train({0x1}, 0x2)\n\t/home/ann/main.go:43 +0x1d\ngithub.com/plx-run/plx/trainer.Main(0x1)\n\t/x/m.go:1 +0x1\n"
	const callback = "goroutine 1 [sleep]:\nmain.build(0x1)\n\t/home/ann/main.go:60 +0x1\ngithub.com/plx-run/plx/trainer.(*Job).Parallelize(0x1)\n\t/x/t.go:9 +0x1\nmain.train({0x1}, 0x2)\n\t/home/ann/main.go:44 +0x1d\n"
	const server = "goroutine 1 [select]:\ngithub.com/plx-run/plx/trainer/exchange/server.(*Server).Serve(0x1)\n\t/x/s.go:1 +0x1\ngithub.com/plx-run/plx/trainer.Main(0x1)\n\t/x/m.go:1 +0x1\nmain.main()\n\t/home/ann/main.go:9 +0x1\n"
	for _, c := range []struct {
		name, stacks, where string
		waits               bool
	}{
		{"in a step", loader + "\n" + step, "", true},
		{"in its own code", own + "\n" + server, "goroutine 1 [IO wait]: main.go:80 in main.fetch, called from main.go:43 in main.train", false},
		{"in a callback", callback, "goroutine 1 [sleep]: main.go:60 in main.build, called from main.go:44 in main.train", false},
		{"a server", server, "goroutine 1 [select]: main.go:9 in main.main", false},
	} {
		got := Training("worker:1, 2026\n\nGoroutines:\n" + c.stacks)
		if got == nil || got.Waits != c.waits || got.Where != c.where {
			t.Errorf("%s: %+v, want %v in %q", c.name, got, c.waits, c.where)
		}
	}
	if got := Training("worker:1, 2026\n\nprocess 7 (train), child of 1\n"); got != nil {
		t.Errorf("not plx's trainer: %+v", got)
	}
}
