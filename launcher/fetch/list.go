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

// ask sends a request to the host's agent, and copies the agent's reply to a
// writer.
func ask(ctx context.Context, a *hosts.AgentHost, want protocol.FetchRequest, to io.Writer) error {
	want.HostJob = protocol.HostJob{Job: a.Job, Folder: a.Folder}
	err := hosts.Pipe(ctx, a, protocol.DoFetch, want, nil, to)
	if transport.ExitStatus(err) == hosts.NotFound {
		return errors.New("the agent of the job was pruned")
	}
	return err
}

// idleTime is how long a host may send nothing while it lists its files.
const idleTime = 40 * time.Second

// list requests a list from the host's agent, and writes the agent's reply to
// a decoder.
func list[T any](ctx context.Context, a *hosts.AgentHost, want protocol.FetchRequest, to *lines[T]) error {
	if err := a.Dial(ctx); err != nil {
		return err
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	to.silent = time.AfterFunc(idleTime, func() { cancel(fmt.Errorf("the host sent nothing for %s", idleTime)) })
	defer to.silent.Stop()
	if err := ask(ctx, a, want, to); err != nil {
		return err
	}
	return to.end()
}

// Limits for the list that one host sends.
const (
	maxList   = 16 << 20 // size of the whole list in bytes
	maxLine   = 8 << 20  // size of one line in bytes; a line describes an output, or a checkpoint with all its files
	maxListed = 100_000  // maximum number of checkpoints, and of their files
)

// lines is a writer that decodes a JSON object from each line. It buffers at
// most one line.
type lines[T any] struct {
	take   func(T) error // called with each decoded object
	silent *time.Timer   // timer that Write resets, and that fires if the host sends nothing for idleTime; nil means no limit
	rest   []byte        // beginning of the line that Write has not received completely
	total  int           // number of bytes written, plus one for each call of Write, so that a host cannot send empty messages forever
}

func (l *lines[T]) Write(p []byte) (int, error) {
	if l.silent != nil {
		l.silent.Reset(idleTime)
	}
	if l.total += 1 + len(p); l.total > maxList { // count one more for each message, because a busy host sends empty messages as heartbeats
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

// end decodes the last line if it does not end in a newline.
func (l *lines[T]) end() error { return l.line(l.rest) }

// listOf returns a decoder for a list of checkpoints. It appends each decoded
// checkpoint to the slice.
func listOf(all *[]protocol.HostCheckpoint) *lines[protocol.HostCheckpoint] {
	files := 0
	return &lines[protocol.HostCheckpoint]{take: func(k protocol.HostCheckpoint) error {
		if files += len(k.Files); len(*all) == maxListed || files > maxListed {
			return fmt.Errorf("list of checkpoints: more than %d checkpoints or files", maxListed)
		}
		if err := checkKept(k); err != nil {
			return fmt.Errorf("list of checkpoints: %w", err)
		}
		*all = append(*all, k)
		return nil
	}}
}

// listOfOutputs returns a decoder for a list of outputs and logs. It appends
// each decoded output or log to the slice.
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

// isBelow reports whether name, which a host has listed, is safe as a path
// below a local folder. It must not lead out of that folder, and its first
// element must not begin with a dot.
func isBelow(name string) bool {
	return fs.ValidPath(name) && name[0] != '.' && len(name) <= protocol.MaxOutputName && filepath.IsLocal(filepath.FromSlash(name)) &&
		!strings.ContainsFunc(name, unicode.IsControl)
}

var plainName = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`^[A-Za-z0-9_][A-Za-z0-9._-]{0,199}$`) })

// checkKept returns an error if the names of a checkpoint or its files are not
// safe as paths below a local folder.
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

// checkOutput returns an error if the name of an output is not safe as a path
// below a local folder, or its size or checksum is invalid.
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
