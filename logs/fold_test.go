package logs

import (
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// folding is a Printer with the options of a live view, and its output.
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

// write passes text to the Printer as output of a task. worker:2 and ps:0 run
// on host h2, other tasks on h1.
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

// A message that several tasks write at the same time is printed once, without
// the parts that differ between the tasks.
func TestEqualMessagesArePrintedOnce(t *testing.T) {
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

// Lines of several tasks are folded if they differ only in ranks, paths and
// the like. plx's own lines that are no errors, and stdout, are printed at
// once.
func TestLinesThatDifferOnlyByTaskAreFolded(t *testing.T) {
	for name, c := range map[string]struct {
		format string // the line of each worker, with a verb for the worker's number
		want   string // the single printed line; empty if the lines must not be folded
	}{
		"equal":            {"UserWarning: %[1]T", "UserWarning: int"},
		"rank tag":         {"[rank%d]:[W1127 12:33:11.123456 TCPStore.cpp:138] broken", "[W1127 12:33:11.123456 TCPStore.cpp:138] broken"},
		"rank":             {"INFO rank=%d ready", "INFO rank=0 ready"},
		"local rank":       {"local_rank: %d", "local_rank: 0"},
		"address":          {"cannot reach 10.77.0.%[1]d:2950%[1]d", "cannot reach 10.77.0.0:29500"},
		"bracketed":        {"to [10.77.0.%[1]d]:2950%[1]d, [::%[1]d]:1", "to [10.77.0.0]:29500, [::0]:1"},
		"port":             {"listening on port 2950%d", "listening on port 29500"},
		"pid":              {"worker process, pid=4%d", "worker process, pid=40"},
		"time":             {"2026-11-27 10:00:0%d,123 start", "2026-11-27 10:00:00,123 start"},
		"log time":         {"[W socket.cpp:558] 0x7f%d0: at 10:00:00", "[W socket.cpp:558] 0x7f00: at 10:00:00"},
		"path of the host": {"/home/u%[1]d/.plx/jobs/j/h%[1]d/work/a.py:3: FutureWarning: y", "/home/u0/.plx/jobs/j/h0/work/a.py:3: FutureWarning: y"},
		"nccl":             {"h:10%[1]d:11%[1]d [%[1]d] NCCL WARN bad", "h:100:110 [0] NCCL WARN bad"},
		"a number":         {"loss 0.%d", ""},
		"a file":           {"part %d of data.bin", ""},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := newFolding(t, Options{})
				apart := ""
				for i := range 3 {
					f.write(fmt.Sprint("worker:", i), Stderr, fmt.Sprintf(c.format+"\n", i))
					apart += fmt.Sprintf("worker:%d h%d ! %s\n", i, 1+i/2, fmt.Sprintf(c.format, i))
					time.Sleep(foldTime / 4)
				}
				time.Sleep(2 * foldTime)
				synctest.Wait()
				want := "3 workers 2 hosts ! " + c.want + "\n"
				if c.want == "" {
					want = apart
				}
				f.check(want)
				f.printer.Close() // the writers never fail
			})
		})
	}
}

// The lines of a task stay in order, and a line that the task writes twice is
// printed twice.
func TestHeldLinesStayInOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFolding(t, Options{})
		f.write("worker:0", Stderr, "a\nb\na\n")
		f.write("worker:0", Stdout, "out\n")
		f.write("worker:1", Stderr, "plx: step\n")
		f.write("worker:1", Stderr, "a\nb\nc\n")
		f.check("worker:0 h1 | out\nworker:1 h1 ! plx: step\n")
		f.printer.Close() // the writers never fail
		f.check("worker:0 h1 | out\nworker:1 h1 ! plx: step\n2 of 3 workers h1 ! a\n2 of 3 workers h1 ! b\nworker:0 h1 ! a\nworker:1 h1 ! c\n")
	})
}

// Each line is held back for one second, whether or not other lines were held
// before. If a job has only one task, its lines are not held.
func TestLinesAreHeldForASecond(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFolding(t, Options{})
		f.write("worker:0", Stderr, "early\n")
		time.Sleep(foldTime * 9 / 10)
		f.write("worker:0", Stderr, "late\n")
		time.Sleep(foldTime / 5)
		synctest.Wait()
		f.check("worker:0 h1 ! early\n")
		f.write("worker:1", Stderr, "late\n")
		time.Sleep(foldTime)
		synctest.Wait()
		f.check("worker:0 h1 ! early\n2 of 3 workers h1 ! late\n")
		f.printer.Close() // the writers never fail

		f = newFolding(t, Options{})
		f.printer.opts.Tasks = []string{"worker:0"}
		f.write("worker:0", Stderr, "alone\n")
		f.check("worker:0 h1 ! alone\n")
	})
}

// If several tasks lost a peer, one line is printed for all, after the
// traceback of the task that failed.
func TestLostPeersArePrintedAsOneLine(t *testing.T) {
	loss := func(lines []string) string {
		if last := lines[len(lines)-1]; strings.Contains(last, "closed by peer") {
			return last
		}
		return ""
	}
	synctest.Test(t, func(t *testing.T) {
		f := newFolding(t, Options{Loss: loss})
		f.write("worker:0", Stderr, "Traceback (most recent call last):\n  at a\nRuntimeError: closed by peer [10.0.0.1]:99\n")
		f.write("worker:1", Stderr, "Traceback (most recent call last):\n  at b\nValueError: bad label\n")
		time.Sleep(foldTime * 3 / 2)
		synctest.Wait()
		const culprit = "worker:1 h1 ! Traceback (most recent call last):\nworker:1 h1 !   at b\nworker:1 h1 ! ValueError: bad label\n"
		f.check(culprit)
		f.write("worker:2", Stderr, "[rank2]: Traceback (most recent call last):\n[rank2]:   at c\n[rank2]: RuntimeError: closed by peer [10.0.0.2]:98\n")
		time.Sleep(victimTime)
		synctest.Wait()
		f.check(culprit + "2 of 3 workers 2 hosts ! lost a peer: RuntimeError: closed by peer [10.0.0.1]:99\n")
		if f.printer.Shown("h1", "worker:0", "RuntimeError: closed by peer [10.0.0.1]:99") {
			t.Error("a traceback that was not printed counts as shown")
		}
		f.printer.Close() // the writers never fail
	})
}

// The number of held lines and their bytes are limited.
func TestHeldLinesAreLimited(t *testing.T) {
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

// Only the selected tasks are printed. Shown reports whether a task's last
// line is still visible.
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
