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

// print prints the results: outputs to stdout, what hosts wrote to stderr to stderr, and
// then how hosts ended.
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
	errs.print(r.results, func(res *result) *kept { return &res.stderr }) // if stderr is gone nobody can be told
	r.printCuts()
	r.printEnds()
	return err
}

// groups puts results with the same key together, in the order of their first hosts. It
// leaves out those with the key "".
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

// labels returns the folded names of hosts.
func labels(group []*result) string {
	var names []string
	for _, res := range group {
		names = append(names, res.host.Label())
	}
	return console.Fold(names)
}

// printer prints one stream of all hosts.
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

// header names the hosts of an output between two rules, as clush -b does.
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

// printCuts reports outputs that were too large to keep.
func (r *run) printCuts() {
	for _, res := range r.results {
		for name, k := range map[string]*kept{"stdout": &res.stdout, "stderr": &res.stderr} {
			if n := k.cut(); n > 0 {
				r.printer.Printf("host %s: the last %s of its %s are not printed: plx keeps %s", res.host.Label(), console.Size(n), name, console.Size(int64(k.limit)))
			}
		}
	}
}

// printEnds reports which commands did not exit with 0, and why others have no exit status.
func (r *run) printEnds() {
	for _, group := range groups(r.results, func(res *result) string {
		if res.err == nil && res.status != 0 && r.interrupts.status.Load() == 0 {
			return fmt.Sprint(res.status)
		}
		return ""
	}) {
		r.printer.Printf("exit status %d: %s", group[0].status, labels(group))
		if group[0].status == notFound && strings.ContainsAny(r.cfg.Program, " |;&$*<>") {
			r.printer.Printf("hint: no shell reads the command; for one: plx exec ... -- bash -c '...'")
		}
	}
	for _, alike := range groups(r.results, func(res *result) string { // so that a hint is printed once
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

// notFound is the exit status if the command was not found on the host.
const notFound = 127

// answer is the result of a host in JSON.
type answer struct {
	Host         string  `json:"host"`
	Status       *int    `json:"status,omitempty"` // exit status of the command; nil: there is an Error
	Stdout       *string `json:"stdout,omitempty"` // nil: StdoutBase64
	StdoutBase64 []byte  `json:"stdoutBase64,omitempty"`
	StdoutCut    int64   `json:"stdoutCut,omitempty"` // bytes at the end that are left out
	Stderr       *string `json:"stderr,omitempty"`    // nil: StderrBase64
	StderrBase64 []byte  `json:"stderrBase64,omitempty"`
	StderrCut    int64   `json:"stderrCut,omitempty"`
	Error        string  `json:"error,omitempty"` // why there is no exit status; empty: there is one
}

// printJSON prints an array with an answer of each host, in the order of the resource file.
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

// textual returns text if it is UTF-8, else its bytes.
func textual(text []byte) (*string, []byte) {
	if !utf8.Valid(text) {
		return nil, text
	}
	s := string(text)
	return &s, nil
}
