package failpoint

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"

	"github.com/plx-run/plx/internal/test/patience"
)

// childVariable is the environment variable that turns the test binary into a
// program that passes one failpoint three times.
const childVariable = "FAILPOINT_TEST_CHILD"

func TestMain(m *testing.M) {
	if os.Getenv(childVariable) == "" {
		os.Exit(m.Run())
	}
	for i := range 3 {
		fmt.Println(i+1, Here("file.write"))
	}
}

// program is the test binary, run as a child process with its output in files.
type program struct {
	*exec.Cmd
	folder string
}

// start starts a child process with a timeout of a minute.
func start(t *testing.T, failpoints string) program {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience.Limit)
	t.Cleanup(cancel)
	p := program{exec.CommandContext(ctx, os.Args[0]), t.TempDir()}
	p.Env = append(os.Environ(), childVariable+"=1", variable+"="+failpoints)
	out, complaint := create(t, p.folder, "out"), create(t, p.folder, "err")
	defer out.Close()
	defer complaint.Close()
	p.Stdout, p.Stderr = out, complaint
	if err := p.Start(); err != nil {
		t.Fatal(err)
	}
	return p
}

func create(t *testing.T, folder, name string) *os.File {
	t.Helper()
	f, err := os.Create(filepath.Join(folder, name))
	if err != nil {
		t.Fatal(err)
	}
	return f
}

// checkSaid compares the child's output so far with the expected texts.
func (p program) checkSaid(t *testing.T, out, complaint string) {
	t.Helper()
	for name, want := range map[string]string{"out": out, "err": complaint} {
		got, err := os.ReadFile(filepath.Join(p.folder, name))
		if err != nil || string(got) != want {
			t.Errorf("standard %s is %q (%v), want %q", name, got, err, want)
		}
	}
}

func TestErrors(t *testing.T) {
	p := start(t, "file.write=short@2;other=kill;file.write=error")
	if err := p.Wait(); err != nil {
		t.Error(err)
	}
	p.checkSaid(t,
		"1 failpoint file.write: an error\n2 failpoint file.write: short write\n3 failpoint file.write: an error\n",
		"failpoint file.write: error\nfailpoint file.write: short\nfailpoint file.write: error\n")
}

func TestNothingWanted(t *testing.T) {
	for _, failpoints := range []string{"", "file.writes=kill", "file.write=kill@4"} {
		p := start(t, failpoints)
		if err := p.Wait(); err != nil {
			t.Error(err)
		}
		p.checkSaid(t, "1 <nil>\n2 <nil>\n3 <nil>\n", "")
	}
}

func TestKill(t *testing.T) {
	p := start(t, "file.write=kill@2")
	var ended *exec.ExitError
	if err := p.Wait(); !errors.As(err, &ended) || ended.Sys().(syscall.WaitStatus).Signal() != syscall.SIGKILL {
		t.Errorf("ended with %v", err)
	}
	p.checkSaid(t, "1 <nil>\n", "failpoint file.write: kill\n")
}

func TestExit(t *testing.T) {
	p := start(t, "file.write=exit@2")
	if err := p.Wait(); err != nil {
		t.Error(err)
	}
	p.checkSaid(t, "1 <nil>\n", "failpoint file.write: exit\n")
}

// A misspelled fault must end the program at its start.
func TestMisspelledFaultEndsTheProgram(t *testing.T) {
	p := start(t, "file.write=kil")
	var ended *exec.ExitError
	if err := p.Wait(); !errors.As(err, &ended) || ended.ExitCode() != 2 {
		t.Errorf("ended with %v", err)
	}
	p.checkSaid(t, "", "PLX_FAILPOINTS: entry \"file.write=kil\": action \"kil\", want error, exit, kill or short\n")
}

// If many goroutines pass a place at the same time, exactly one of them is the
// fifth hit.
func TestHitsAreCounted(t *testing.T) {
	f, err := parse("a=error@5")
	if err != nil {
		t.Fatal(err)
	}
	var failed atomic.Int64
	var all sync.WaitGroup
	for range 20 {
		all.Go(func() {
			if f.hit("a") != nil {
				failed.Add(1)
			}
		})
	}
	all.Wait()
	if n := failed.Load(); n != 1 {
		t.Errorf("%d of 20 hits failed", n)
	}
}

// After the file appears, the fault must happen once, in one of many
// goroutines.
func TestFileTriggersTheFaultOnce(t *testing.T) {
	file := filepath.Join(t.TempDir(), "now")
	f, err := parse("a=short@" + file + ";a=error@3")
	if err != nil {
		t.Fatal(err)
	}
	if err := f.hit("a"); err != nil {
		t.Errorf("before there is a file: %v", err)
	}
	if err := create(t, filepath.Dir(file), "now").Close(); err != nil {
		t.Fatal(err)
	}
	if err := f.hit("a"); !errors.Is(err, io.ErrShortWrite) {
		t.Errorf("when the file is there: %v", err)
	}
	if err := f.hit("a"); err == nil || errors.Is(err, io.ErrShortWrite) {
		t.Errorf("the third hit: %v", err)
	}
	if err := f.hit("a"); err != nil {
		t.Errorf("after it: %v", err)
	}
}

// The error for an invalid entry must contain the entry.
func TestParseErrors(t *testing.T) {
	for text, want := range map[string]string{
		"a":         `entry "a": action "", want error, exit, kill or short`,
		"a=error;":  `entry "": name "", want letters, digits and . - _`,
		" a=error":  `entry " a=error": name " a", want letters, digits and . - _`,
		"a=KILL":    `entry "a=KILL": action "KILL", want error, exit, kill or short`,
		"a=kill@":   `entry "a=kill@": hit "", want a whole number from 1 on, or a file's path from the root`,
		"a=kill@0":  `entry "a=kill@0": hit "0", want a whole number from 1 on, or a file's path from the root`,
		"a=kill@1@": `entry "a=kill@1@": hit "1@", want a whole number from 1 on, or a file's path from the root`,
	} {
		if f, err := parse(text); f != nil || err == nil || err.Error() != want {
			t.Errorf("%q: %v, %v, want %s", text, f, err, want)
		}
	}
}

// An entry that is parsed, written and parsed again must not change.
func FuzzParse(f *testing.F) {
	f.Add("checkpoint.rename=kill@2;checkpoint.write=error")
	f.Add("a=kill@;=;@=error;a=error@/y")
	f.Fuzz(func(t *testing.T, text string) {
		read, err := parse(text)
		if err != nil {
			return
		}
		var entries []string
		for _, f := range read {
			entry := f.name + "=" + f.action
			if f.hit > 0 || f.file != "" {
				entry += "@" + cmp.Or(f.file, fmt.Sprint(f.hit))
			}
			entries = append(entries, entry)
		}
		if again, err := parse(strings.Join(entries, ";")); err != nil || !reflect.DeepEqual(again, read) {
			t.Fatalf("%v, then %v: %v", read, again, err)
		}
	})
}
