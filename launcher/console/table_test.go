package console

import (
	"bytes"
	"fmt"
	"strings"
	"testing"

	"github.com/charmbracelet/x/ansi"

	"github.com/plx-run/plx/logs/style"
)

// jobsTable returns a table with the columns of plx jobs.
func jobsTable() *Table {
	t := NewTable("JOB", "STARTED", "STATE", "CODE", "REASON")
	t.Level = func(column, cell string) style.Level {
		if column == "STATE" {
			return style.Bad
		}
		return style.Plain
	}
	t.Row("train-20261123-143722-7vsz", "2026-11-23 14:37:22", "failed", "3", "worker:1 on h2 exited with status 3; its last lines are above")
	t.Row("x", "2026-11-23 14:37:23", "done", "0", "done")
	return t
}

// Without a terminal a table is printed completely and without colours.
func TestTableWithoutTerminal(t *testing.T) {
	table := jobsTable()
	table.Row("a\x1b[2Jb", "one\ntwo\tthree")
	var out bytes.Buffer
	if err := table.Write(Terminal{Stdout: &out}); err != nil {
		t.Fatal(err)
	}
	want := "" +
		"JOB                         STARTED              STATE   CODE  REASON\n" +
		"train-20261123-143722-7vsz  2026-11-23 14:37:22  failed  3     worker:1 on h2 exited with status 3; its last lines are above\n" +
		"x                           2026-11-23 14:37:23  done    0     done\n" +
		"a\\x1b[2Jb                   one; two three\n"
	if out.String() != want {
		t.Errorf("got\n%swant\n%s", out.String(), want)
	}
}

// On a terminal no line exceeds the width and no text is lost. A last column
// that does not fit moves below its row.
func TestTableFitsTerminal(t *testing.T) {
	for width := 60; width <= 200; width++ {
		for _, colour := range []bool{false, true} {
			var out bytes.Buffer
			if err := jobsTable().Write(Terminal{Stdout: &out, Width: width, StdoutColour: colour}); err != nil {
				t.Fatal(err)
			}
			for line := range strings.Lines(out.String()) {
				if n := ansi.StringWidth(line); n > width || strings.HasSuffix(line, " \n") {
					t.Errorf("%d cells of %d, or blanks at the end: %q", n, width, line)
				}
			}
			plain := ansi.Strip(out.String())
			for word := range strings.FieldsSeq("2026-11-23 14:37:22 failed worker:1 on h2 exited with status above") {
				if !strings.Contains(plain, word) {
					t.Errorf("%d cells: no %q in\n%s", width, word, plain)
				}
			}
			if whole := strings.Contains(plain, "train-20261123-143722-7vsz"); !whole && width >= 80 {
				t.Errorf("%d cells: the id is not whole:\n%s", width, plain)
			}
			if red := strings.Contains(out.String(), style.Bad.Paint("failed", true)); red != colour {
				t.Errorf("%d cells, colour %v:\n%q", width, colour, out.String())
			}
		}
	}
	var out bytes.Buffer
	small := NewTable("JOB", "STARTED", "TOOK", "HOSTS", "TASKS", "STATE", "CODE", "REASON")
	small.Row("slow-20261128-025609-7mcq", "2026-11-28 02:56:09", "2s", "2", "2", "stopped", "143", "stopped by plx stop")
	small.Write(Terminal{Stdout: &out, Width: 60}) // a Buffer takes everything
	narrow := "" +
		"JOB                       STARTED           TOOK HOSTS TASKS\n" +
		"slow-20261128-025609-7mcq 2026-11-28        2s   2     2\n" +
		"                          02:56:09\n" +
		"    STATE stopped\n" +
		"    CODE 143\n" +
		"    stopped by plx stop\n"
	if out.String() != narrow {
		t.Errorf("got\n%swant\n%s", out.String(), narrow)
	}
	out.Reset()
	jobsTable().Write(Terminal{Stdout: &out, Width: 70}) // a Buffer takes everything
	want := "" +
		"JOB                         STARTED              STATE   CODE\n" +
		"train-20261123-143722-7vsz  2026-11-23 14:37:22  failed  3\n" +
		"    worker:1 on h2 exited with status 3; its last lines are above\n" +
		"x                           2026-11-23 14:37:23  done    0\n" +
		"    done\n"
	if out.String() != want {
		t.Errorf("got\n%swant\n%s", out.String(), want)
	}
}

// Errors are red and their hints are not. Without colours the text has no
// escape sequences.
func TestNoticeColours(t *testing.T) {
	for _, colour := range []bool{false, true} {
		var out output
		p := NewPrinter(Terminal{Stderr: &out, StderrColour: colour})
		p.Error(hinted{})
		p.Report(style.Good, "job %s: done", "a")
		p.Printf("a notice")
		before := p.prefix()
		want := fmt.Sprintf("%[1]s%[2]s\n%[1]s%[3]s\n%[1]shint: do this\n%[1]s%[4]s\n%[1]sa notice\n", before,
			style.Bad.Paint("one", colour), style.Bad.Paint("  two", colour), style.Good.Paint("job a: done", colour))
		if got := out.take(); got != want || colour != strings.Contains(got, "\x1b[31mone") {
			t.Errorf("colour %v: %q, want %q", colour, got, want)
		}
	}
}

type hinted struct{}

func (hinted) Error() string { return "one\ntwo" }
func (hinted) Hint() string  { return "do this" }

// No word is split at 60, 80 or 120 columns, and with Spare each row is one
// line.
func TestTableBreaksNoWord(t *testing.T) {
	long := NewTable("JOB", "STARTED", "TOOK", "HOSTS", "TASKS", "STATE", "CODE", "REASON")
	long.Row("a-name-of-forty-letters-aaaaaaaaaaaaaaaaa-20261128-025609-7mcq", "2026-11-28 02:56:09", "1h02m03s", "12", "96", "running, generation 2", "", "")
	long.Row("x-20261128-025609-7mcq", "2026-11-28 02:56:09", "2s", "2", "2", "failed", "143", "worker:1 on h2 exited with status 3; its last lines are above")
	for width := 20; width <= 250; width++ {
		words := map[string]bool{}
		for _, row := range long.rows[1:] {
			for word := range strings.FieldsSeq(strings.Join(row, " ")) {
				words[word] = true
			}
		}
		long.Spare = nil
		text := strings.Join(long.lines(width, false), "\n")
		for word := range strings.FieldsSeq(text) {
			delete(words, word)
		}
		if len(words) > 0 {
			t.Fatalf("%d columns: broken: %v in\n%s", width, words, text)
		}
		long.Spare = []string{"REASON", "STARTED", "TASKS", "HOSTS", "TOOK", "CODE"}
		if lines := long.lines(width, false); len(lines) != 3 && width >= 90 {
			t.Errorf("%d columns: want a line per row:\n%s", width, strings.Join(lines, "\n"))
		}
	}
}

// Wrapped lines of a cell are indented, so that they do not look like lines of
// plx.
func TestWrappedLinesAreIndented(t *testing.T) {
	table := NewTable("TASK", "STATE")
	table.Row("a task that says plx: all is well", "running")
	for _, line := range table.lines(24, false)[2:] {
		if !strings.HasPrefix(line, "  ") {
			t.Errorf("%q", line)
		}
	}
	if got := len(table.lines(24, false)); got < 4 {
		t.Errorf("%d lines", got)
	}
}
