package exec

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"strings"
	"testing"

	"github.com/plx-run/plx/hostfile"
	"github.com/plx-run/plx/launcher/console"
	"github.com/plx-run/plx/launcher/exit"
	"github.com/plx-run/plx/launcher/hosts"
)

func answers(texts ...string) (all []*result) {
	for i, text := range texts {
		res := newResult(hosts.NewHost(hostfile.Host{Name: "h" + string(rune('1'+i))}, nil), 1)
		res.stdout.Write([]byte(text)) // never fails
		all = append(all, res)
	}
	return all
}

func stdout(res *result) *kept { return &res.stdout }

// On a terminal, the output is coloured, and its control characters are
// escaped.
func TestPrint(t *testing.T) {
	const rule = "---------------\n"
	for _, c := range []struct {
		to   printer
		want string
	}{
		{printer{}, rule + "h[1,3] (2)\n" + rule + "a\x1b[2J\r\n" + rule + "h4\n" + rule + "b\n"},
		{printer{tty: true}, rule + "h[1,3] (2)\n" + rule + "a\n" + rule + "h4\n" + rule + "b\n"},
		{printer{tty: true, colour: true}, "\x1b[1;36m---------------\x1b[0m\n\x1b[1;36mh[1,3] (2)\x1b[0m\n\x1b[1;36m---------------\x1b[0m\na\n" +
			"\x1b[1;36m---------------\x1b[0m\n\x1b[1;36mh4\x1b[0m\n\x1b[1;36m---------------\x1b[0m\nb\n"},
	} {
		var out bytes.Buffer
		c.to.w = &out
		if err := c.to.print(answers("a\x1b[2J\r\n", "", "a\x1b[2J\r\n", "b"), stdout); err != nil {
			t.Fatal(err)
		}
		if out.String() != c.want {
			t.Errorf("%+v:\n%q, want\n%q", c.to, out.String(), c.want)
		}
	}
}

func TestHeaderIsEscaped(t *testing.T) {
	all := answers("a")
	all[0].host.Resource.Name = "h\x1b[2J"
	if want, got := `h\x1b[2J`, (printer{}).header(all); strings.Split(got, "\n")[1] != want {
		t.Errorf("%q, want %q", got, want)
	}
}

// Streams with the same beginning but different ends have different keys.
func TestKeyDiffersForEqualBeginnings(t *testing.T) {
	one, two := newKept(4), newKept(4)
	for _, text := range []string{"ab", "cd", "ef"} {
		one.Write([]byte(text)) // never fails
	}
	two.Write([]byte("abcdeg")) // never fails
	if string(one.text) != "abcd" || one.cut() != 2 || string(two.text) != "abcd" || one.key() == two.key() {
		t.Errorf("%q, %d bytes cut; %q", one.text, one.cut(), two.text)
	}
}

// If the errors of several hosts have the same hint, it is printed once, after
// the errors.
func TestHintsArePrintedOnce(t *testing.T) {
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close() // it was read
	run := &run{results: answers("", "", "", ""), printer: console.NewPrinter(console.Terminal{Stderr: w})}
	run.interrupts = &interrupts{}
	for i, hint := range []string{"a", "b", "a", "a"} {
		run.results[i].err = exit.WithHint(fmt.Errorf("failed %d", min(i, 2)), hint)
	}
	run.printEnds()
	w.Close() // the pipe's buffer holds the whole output
	want := "plx: host h1: failed 0\nplx: host h[3-4]: failed 2\nplx: hint: a\nplx: host h2: failed 1\nplx: hint: b\n"
	if got, err := io.ReadAll(r); err != nil || string(got) != want {
		t.Errorf("%q, %v, want %q", got, err, want)
	}
}

// An error that several hosts have is printed once. Each host is named once,
// even if the error already contains its name.
func TestHostsAreNamedOnce(t *testing.T) {
	var said bytes.Buffer
	run := &run{results: answers("", "", ""), printer: console.NewPrinter(console.Terminal{Stderr: &said})}
	run.interrupts = &interrupts{}
	run.each("running", func(res *result, _ *console.HostProgress) error {
		return fmt.Errorf("run: host %s: cut", res.host.Name())
	})
	run.printEnds()
	if want := "plx: host h[1-3]: run: cut\n"; said.String() != want {
		t.Errorf("%q, want %q", said.String(), want)
	}
}
