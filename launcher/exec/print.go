package exec

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"unicode/utf8"

	"github.com/plx-run/plx/launcher/console"
	"github.com/plx-run/plx/launcher/exit"
	"github.com/plx-run/plx/logs"
	"github.com/plx-run/plx/logs/style"
)

// print prints the results: the hosts' output on stdout and stderr, and then
// each exit status other than 0.
func (r *run) print() error {
	if r.cfg.JSON {
		return r.printJSON()
	}
	if r.live != nil {
		err := r.live.Close()
		r.printEnds()
		return err
	}
	t := r.cfg.Terminal
	out := printer{w: t.Stdout, tty: t.StdoutTTY, colour: t.StdoutColour}
	err := out.print(r.results, func(res *result) *kept { return &res.stdout })
	errs := printer{w: t.Stderr, tty: t.StderrTTY, colour: t.StderrColour}
	errs.print(r.results, func(res *result) *kept { return &res.stderr }) // ignore the error, because a failed stderr cannot report it
	r.printCuts()
	r.printEnds()
	return err
}

// groups groups results for which the function key returns the same text. The
// groups are in the order of their first hosts. Results with the key "" are
// omitted.
func groups(all []*result, key func(*result) string) [][]*result {
	at := map[string]int{}
	var found [][]*result
	for _, res := range all {
		k := key(res)
		if k == "" {
			continue
		}
		i, known := at[k]
		if !known {
			i = len(found)
			at[k], found = i, append(found, nil)
		}
		found[i] = append(found[i], res)
	}
	return found
}

// labels returns the names of the group's hosts in short form, such as
// "node[1-4]".
func labels(group []*result) string {
	var names []string
	for _, res := range group {
		names = append(names, res.host.Label())
	}
	return console.Fold(names)
}

// printer prints one stream, stdout or stderr, of all hosts.
type printer struct {
	w           io.Writer
	tty, colour bool
}

func (p printer) print(all []*result, stream func(*result) *kept) error {
	for _, group := range groups(all, func(res *result) string {
		if k := stream(res); k.total > 0 {
			return k.key()
		}
		return ""
	}) {
		text := stream(group[0]).text
		if p.tty {
			text = logs.Safe(text, p.colour)
		}
		if !bytes.HasSuffix(text, []byte("\n")) {
			text = append(bytes.Clone(text), '\n')
		}
		if _, err := fmt.Fprintf(p.w, "%s\n%s", p.header(group), text); err != nil {
			return fmt.Errorf("print the output: %w", err)
		}
	}
	return nil
}

// header returns a heading with the names of the hosts between two lines of
// dashes, as "clush -b" prints it.
func (p printer) header(group []*result) string {
	name := logs.Escape(labels(group))
	if len(group) > 1 {
		name += fmt.Sprintf(" (%d)", len(group))
	}
	rule := strings.Repeat("-", 15)
	if !p.colour {
		return rule + "\n" + name + "\n" + rule
	}
	return style.Heading.Render(rule) + "\n" + style.Heading.Render(name) + "\n" + style.Heading.Render(rule)
}

// printCuts prints a line for each output that was too large, so that only its
// beginning was printed.
func (r *run) printCuts() {
	for _, res := range r.results {
		for name, k := range map[string]*kept{"stdout": &res.stdout, "stderr": &res.stderr} {
			if n := k.cut(); n > 0 {
				r.printer.Printf("host %s: the last %s of its %s are not printed: plx keeps %s", res.host.Label(), console.Size(n), name, console.Size(int64(k.limit)))
			}
		}
	}
}

// printEnds prints which commands exited with a status other than 0, and the
// errors of hosts without an exit status.
func (r *run) printEnds() {
	for _, group := range groups(r.results, func(res *result) string {
		if res.err == nil && res.status != 0 && r.interrupts.status.Load() == 0 {
			return fmt.Sprint(res.status)
		}
		return ""
	}) {
		r.printer.Printf("exit status %d: %s", group[0].status, labels(group))
		if group[0].status == notFound && strings.ContainsAny(r.cfg.Program, " |;&$*<>") {
			r.printer.Printf("hint: plx exec runs the command without a shell; to use one: plx exec ... -- bash -c '...'")
		}
	}
	// Group the errors by their hint, so that each hint is printed once.
	for _, alike := range groups(r.results, func(res *result) string {
		if res.err != nil {
			return "\x00" + exit.Hint(res.err)
		}
		return ""
	}) {
		var errs []error
		for _, group := range groups(alike, func(res *result) string { return res.err.Error() }) {
			errs = append(errs, fmt.Errorf("host %s: %w", labels(group), group[0].err))
		}
		r.printer.Error(errors.Join(errs...))
	}
}

// notFound is the exit status that the agent, like a shell, reports for a
// command that was not found on the host.
const notFound = 127

// answer is the result of one host in the JSON output.
type answer struct {
	Host         string  `json:"host"`
	Status       *int    `json:"status,omitempty"` // exit status of the command; nil if Error is set
	Stdout       *string `json:"stdout,omitempty"` // stdout of the command as text; nil if it is not UTF-8, and then StdoutBase64 has it
	StdoutBase64 []byte  `json:"stdoutBase64,omitempty"`
	StdoutCut    int64   `json:"stdoutCut,omitempty"` // number of bytes that are missing at the end of stdout
	Stderr       *string `json:"stderr,omitempty"`    // stderr of the command as text; nil if it is not UTF-8, and then StderrBase64 has it
	StderrBase64 []byte  `json:"stderrBase64,omitempty"`
	StderrCut    int64   `json:"stderrCut,omitempty"`
	Error        string  `json:"error,omitempty"` // why the command has no exit status; "" if it has one
}

// printJSON prints a JSON array with one element per host, in the order of the
// resource file.
func (r *run) printJSON() error {
	answers := []answer{}
	for _, res := range r.results {
		a := answer{Host: res.host.Label(), StdoutCut: res.stdout.cut(), StderrCut: res.stderr.cut()}
		a.Stdout, a.StdoutBase64 = textual(res.stdout.text)
		a.Stderr, a.StderrBase64 = textual(res.stderr.text)
		if a.Status = &res.status; res.err != nil {
			a.Status, a.Error = nil, res.err.Error()
		}
		answers = append(answers, a)
	}
	out := json.NewEncoder(r.cfg.Terminal.JSON())
	out.SetEscapeHTML(false)
	if err := out.Encode(answers); err != nil {
		return fmt.Errorf("print the output: %w", err)
	}
	return nil
}

// textual returns text as a string if it is valid UTF-8, or else as bytes.
func textual(text []byte) (*string, []byte) {
	if !utf8.Valid(text) {
		return nil, text
	}
	s := string(text)
	return &s, nil
}
