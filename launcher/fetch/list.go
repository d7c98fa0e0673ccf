package fetch

import (
	"bytes"
	"context"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"time"
	"unicode"

	"github.com/plx-run/plx/launcher/hosts"
	"github.com/plx-run/plx/launcher/protocol"
	"github.com/plx-run/plx/launcher/transport"
	"github.com/plx-run/plx/logs"
)

// ask asks the host's agent, and writes what it sends.
func ask(ctx context.Context, a *hosts.AgentHost, want protocol.FetchRequest, to io.Writer) error {
	want.HostJob = protocol.HostJob{Job: a.Job, Folder: a.Folder}
	err := hosts.Pipe(ctx, a, protocol.DoFetch, want, nil, to)
	if transport.ExitStatus(err) == hosts.NotFound {
		return errors.New("the agent of the job was pruned")
	}
	return err
}

// idleTime bounds how long a host may be silent while it lists what it has.
const idleTime = 40 * time.Second

// list asks the host's agent for a list.
func list[T any](ctx context.Context, a *hosts.AgentHost, want protocol.FetchRequest, to *lines[T]) error {
	if err := a.Dial(ctx); err != nil {
		return err
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	to.silent = time.AfterFunc(idleTime, func() { cancel(fmt.Errorf("it was silent for %s", idleTime)) })
	defer to.silent.Stop()
	if err := ask(ctx, a, want, to); err != nil {
		return err
	}
	return to.end()
}

// Bounds of the list of one host.
const (
	maxList  = 16 << 20 // bytes of all lines
	maxLine  = 8 << 20  // bytes of a line: a checkpoint with all of its files, or an output
	mostKept = 100_000  // checkpoints and their files
)

// lines decodes what is written to it, an object of JSON on each line. It keeps no more
// text than the last line.
type lines[T any] struct {
	take   func(T) error // is given each object
	silent *time.Timer   // is reset by each Write; nil: there is none
	rest   []byte        // beginning of a line
	total  int           // bytes that were written, and number of Writes
}

func (l *lines[T]) Write(p []byte) (int, error) {
	if l.silent != nil {
		l.silent.Reset(idleTime)
	}
	if l.total += 1 + len(p); l.total > maxList { // an empty piece, while the host is at work, counts too
		return 0, fmt.Errorf("the list has more than %d bytes", maxList)
	}
	for rest := p; ; {
		part, after, ended := bytes.Cut(rest, []byte("\n"))
		if l.rest = append(l.rest, part...); len(l.rest) > maxLine {
			return 0, fmt.Errorf("a line of the list has more than %d bytes", maxLine)
		}
		if !ended {
			return len(p), nil
		}
		if err := l.line(l.rest); err != nil {
			return 0, err
		}
		l.rest, rest = l.rest[:0], after
	}
}

func (l *lines[T]) line(text []byte) error {
	if len(bytes.TrimSpace(text)) == 0 {
		return nil
	}
	var object T
	if err := json.Unmarshal(text, &object); err != nil {
		return err
	}
	return l.take(object)
}

// end takes the last line, if it has no end.
func (l *lines[T]) end() error { return l.line(l.rest) }

// listOf returns what reads a list of checkpoints.
func listOf(all *[]protocol.HostCheckpoint) *lines[protocol.HostCheckpoint] {
	files := 0
	return &lines[protocol.HostCheckpoint]{take: func(k protocol.HostCheckpoint) error {
		if files += len(k.Files); len(*all) == mostKept || files > mostKept {
			return fmt.Errorf("list of checkpoints: more than %d checkpoints or files", mostKept)
		}
		if err := checkKept(k); err != nil {
			return fmt.Errorf("list of checkpoints: %w", err)
		}
		*all = append(*all, k)
		return nil
	}}
}

// listOfOutputs returns what reads a list of outputs and logs.
func listOfOutputs(all *[]protocol.HostOutput) *lines[protocol.HostOutput] {
	return &lines[protocol.HostOutput]{take: func(o protocol.HostOutput) error {
		if len(*all) == protocol.MaxOutputs {
			return fmt.Errorf("more than %d outputs", protocol.MaxOutputs)
		}
		if err := checkOutput(o); err != nil {
			return fmt.Errorf("list of outputs: %w", err)
		}
		*all = append(*all, o)
		return nil
	}}
}

// isBelow reports whether name is the path of something below a folder of this machine, and not
// hidden at its top.
func isBelow(name string) bool {
	return fs.ValidPath(name) && name[0] != '.' && len(name) <= protocol.MaxOutputName && filepath.IsLocal(filepath.FromSlash(name)) &&
		!strings.ContainsFunc(name, unicode.IsControl)
}

var plainName = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`^[A-Za-z0-9_][A-Za-z0-9._-]{0,199}$`) })

// checkKept refuses a checkpoint whose names are no path below a folder of this machine.
func checkKept(k protocol.HostCheckpoint) error {
	if !isBelow(k.Folder) {
		return fmt.Errorf("%.100q is no folder of a checkpoint", k.Folder)
	}
	for _, f := range k.Files {
		if !plainName().MatchString(f.Name) || f.Size < 0 {
			return fmt.Errorf("checkpoint %s: %q is no file of a checkpoint", k.Folder, f.Name)
		}
	}
	return nil
}

var placeName = sync.OnceValue(func() *regexp.Regexp {
	return regexp.MustCompile(`^((worker|ps)-[0-9]{1,9}|` + protocol.SharedPlace + `|` + protocol.TelemetryPlace + `|` + protocol.LogsPlace + `)$`)
})

// checkOutput refuses what is no path below a folder of this machine.
func checkOutput(o protocol.HostOutput) error {
	sum, err := hex.DecodeString(o.Sum)
	switch {
	case !placeName().MatchString(o.Place):
		return fmt.Errorf("%.100q is no task", o.Place)
	case !isBelow(o.Name):
		return fmt.Errorf("%.100q is no path of an output", o.Name)
	case o.Place == protocol.LogsPlace && !logs.IsFile(o.Name):
		return fmt.Errorf("%.100q is no log of a task", o.Name)
	case o.Damage == "" && (err != nil || len(sum) != 32 || o.Size < 0):
		return fmt.Errorf("output %s has no valid sum or size", o.Name)
	}
	return nil
}
