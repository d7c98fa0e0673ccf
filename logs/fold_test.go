package logs

import (
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// folding prints what tasks write, in the order of a live view.
type folding struct {
	t       *testing.T
	printer *Printer
	out     screenful
	offsets map[Source]int64
}

func newFolding(t *testing.T, opts Options) *folding {
	f := &folding{t: t, offsets: map[Source]int64{}}
	opts.Fold, opts.Hosts, opts.Tasks = true, []string{"h1", "h2"}, []string{"worker:0", "worker:1", "worker:2", "ps:0"}
	f.printer = NewPrinter(pipes(&f.out, &f.out), opts)
	return f
}

// write is what a task writes; worker:2 and ps:0 run on h2.
func (f *folding) write(task string, stream Stream, text string) {
	f.t.Helper()
	host, src := "h1", Source{task, stream}
	if task == "worker:2" || task == "ps:0" {
		host = "h2"
	}
	if err := f.printer.Chunk(host, Chunk{Source: src, Offset: f.offsets[src], Data: []byte(text)}); err != nil {
		f.t.Fatal(err)
	}
	f.offsets[src] += int64(len(text))
}

func (f *folding) check(want string) {
	f.t.Helper()
	if got := f.out.String(); got != want {
		f.t.Errorf("got\n%s\nwant\n%s", got, want)
	}
}

// A message that tasks write at the same time is printed once, without what only tells
// the tasks apart.
func TestEqualMessagesAreFolded(t *testing.T) {
	const trace = "Traceback (most recent call last):\n  File \"/root/.plx/jobs/j/%s/worker:%d/x.py\", line 1\nValueError: no data\n"
	for name, c := range map[string]struct {
		write func(f *folding)
		want  string
	}{
		"all workers": {func(f *folding) {
			for i := range 3 {
				f.write(fmt.Sprint("worker:", i), Stderr, fmt.Sprintf("plx: worker:%d: too few rows\nplx: hint: more\n", i))
			}
		}, "3 workers 2 hosts ! plx: too few rows\n3 workers 2 hosts ! plx: hint: more\n"},
		"some workers of a host, and others": {func(f *folding) {
			f.write("worker:0", Stderr, "plx: worker:0: a\n")
			f.write("worker:2", Stderr, "plx: worker:2: b\n")
			f.write("worker:1", Stderr, "plx: worker:1: a\n")
		}, "2 of 3 workers h1 ! plx: a\nworker:2 h2 ! plx: worker:2: b\n"},
		"tasks of all roles": {func(f *folding) {
			f.write("worker:0", Stderr, "plx: worker:0: a\n")
			f.write("ps:0", Stderr, "plx: ps:0: a\n")
		}, "2 tasks  2 hosts ! plx: a\n"},
		"tracebacks in folders of tasks": {func(f *folding) {
			f.write("worker:0", Stderr, fmt.Sprintf(trace, "h1", 0))
			f.write("worker:2", Stderr, fmt.Sprintf(trace, "h2", 2))
		}, "2 of 3 workers 2 hosts ! Traceback (most recent call last):\n2 of 3 workers 2 hosts !   File \"/root/.plx/jobs/j/h1/worker:0/x.py\", line 1\n2 of 3 workers 2 hosts ! ValueError: no data\n"},
		"tracebacks with ranks": {func(f *folding) {
			for i := range 3 {
				f.write(fmt.Sprint("worker:", i), Stderr, fmt.Sprintf("[rank%d]: Traceback (most recent call last):\n[rank%d]: ValueError\n", i, i))
			}
		}, "3 workers 2 hosts ! Traceback (most recent call last):\n3 workers 2 hosts ! ValueError\n"},
		"tracebacks that differ stay whole": {func(f *folding) {
			f.write("worker:0", Stderr, "Traceback (most recent call last):\n")
			f.write("worker:1", Stderr, "Traceback (most recent call last):\n")
			f.write("worker:0", Stderr, "ValueError\n")
			f.write("worker:1", Stderr, "KeyError\n")
		}, "worker:0 h1 ! Traceback (most recent call last):\nworker:0 h1 ! ValueError\nworker:1 h1 ! Traceback (most recent call last):\nworker:1 h1 ! KeyError\n"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := newFolding(t, Options{})
				c.write(f)
				f.check("")
				time.Sleep(2 * foldTime)
				synctest.Wait()
				f.check(c.want)
				if err := f.printer.Close(); err != nil {
					t.Error(err)
				}
				f.check(c.want)
			})
		})
	}
}

// Output of programs is neither held back nor folded, and equal lines of one task stay.
func TestProgramOutputIsNotFolded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFolding(t, Options{})
		want := ""
		for range 2 {
			for i := range 2 {
				f.write(fmt.Sprint("worker:", i), Stderr, "plx: step\n")
				f.write(fmt.Sprint("worker:", i), Stdout, "plx: step\n")
				want += fmt.Sprintf("worker:%d h1 ! plx: step\nworker:%d h1 | plx: step\n", i, i)
			}
		}
		f.check(want)
		// What follows a message waits with it, so the task's lines stay in order.
		f.write("worker:0", Stderr, "before\nplx: worker:0: a\nafter\n")
		f.write("worker:1", Stderr, "plx: worker:1: a\nother\n")
		want += "worker:0 h1 ! before\n"
		f.check(want)
		f.printer.Close() // the writers never fail
		f.check(want + "worker:0 h1 ! plx: worker:0: a\nworker:0 h1 ! after\nworker:1 h1 ! plx: worker:1: a\nworker:1 h1 ! other\n")
	})
}

// What is held back is bounded.
func TestHeldLinesAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFolding(t, Options{})
		f.write("worker:0", Stderr, "plx: worker:0: a\n"+strings.Repeat("line\n", 3*maxHeld))
		if n := strings.Count(f.out.String(), "\n"); n < 3*maxHeld {
			t.Errorf("%d lines are printed", n)
		}
		f.write("worker:1", Stderr, "plx: warn: "+strings.Repeat("x", heldBytes)+"\n")
		if !strings.HasSuffix(f.out.String(), "x\n") {
			t.Error("a long line is held back")
		}
		f.printer.Close() // the writers never fail
	})
}

// Only the chosen tasks are printed. Shown knows which last line a user has just seen.
func TestOnlyAndShown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFolding(t, Options{Only: []string{"worker:[01]"}})
		for _, task := range []string{"worker:0", "worker:1", "worker:2", "ps:0"} {
			f.write(task, Stderr, "plx: "+task+": cause\n")
		}
		if f.printer.Shown("h1", "worker:0", "cause") {
			t.Error("a line that is held back counts as shown")
		}
		time.Sleep(2 * foldTime)
		synctest.Wait()
		f.check("2 of 3 workers h1 ! plx: cause\n")
		if f.printer.lines != 1 {
			t.Errorf("%d lines count as printed, want 1", f.printer.lines)
		}
		for task, host := range map[string]string{"worker:0": "h1", "worker:1": "h1", "worker:2": "h2", "ps:0": "h2"} {
			if got := f.printer.Shown(host, task, "plx: "+task+": cause"); got != (host == "h1") {
				t.Errorf("%s: shown %v", task, got)
			}
		}
		if f.printer.Shown("h1", "worker:0", "cau") || f.printer.Shown("h1", "worker:0", "") {
			t.Error("another text counts as shown")
		}
		f.write("worker:1", Stdout, strings.Repeat("line\n", recent))
		if f.printer.Shown("h1", "worker:0", "cause") {
			t.Error("what is far above counts as just shown")
		}
	})
}
