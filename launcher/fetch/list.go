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
)

// Bounds of the list of one host, in bytes.
const (
	maxList = 16 << 20 // all lines
	maxLine = 8 << 20  // a line: a checkpoint with all of its files, or an output
)

// lines decodes what is written to it, an object of JSON on each line. It keeps no more
// text than the last line.
type lines[T any] struct {
	take  func(T) error // is given each object
	rest  []byte        // beginning of a line
	total int           // bytes that were written, and number of Writes
}

func (l *lines[T]) Write(p []byte) (int, error) {
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

// fetch asks the host's agent for what the job has made, and writes what it sends.
func fetch(ctx context.Context, s *hosts.AgentHost, want protocol.FetchRequest, to io.Writer) error {
	want.HostJob = protocol.HostJob{Job: s.Job, Folder: s.Folder}
	err := hosts.Pipe(ctx, s, protocol.DoFetch, want, nil, to)
	if transport.ExitStatus(err) == hosts.NotFound {
		return errors.New("the agent of the job was pruned")
	}
	return err
}

// idleTime bounds how long a host may be silent while it lists its outputs.
const idleTime = 40 * time.Second

// idle postpones its timer when something is written to it.
type idle struct {
	mu    sync.Mutex
	timer *time.Timer
}

func (i *idle) Write(p []byte) (int, error) {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.timer.Reset(idleTime)
	return len(p), nil
}

// askTime bounds one question to a host.
const askTime = 40 * time.Second

// kept asks a host which checkpoints of a name it has, within askTime.
func kept(ctx context.Context, s *hosts.AgentHost, name string) ([]protocol.HostCheckpoint, error) {
	ctx, cancel, err := s.WithTimeout(ctx, askTime)
	if err != nil {
		return nil, err
	}
	defer cancel()
	var list []protocol.HostCheckpoint
	out := listOf(&list)
	if err := fetch(ctx, s, protocol.FetchRequest{Checkpoints: name}, out); err != nil {
		return nil, err
	}
	return list, out.end()
}

// mostKept bounds the checkpoints and the files that a host lists.
const mostKept = 100_000

// listOf returns what reads a list of checkpoints.
func listOf(list *[]protocol.HostCheckpoint) *lines[protocol.HostCheckpoint] {
	files := 0
	return &lines[protocol.HostCheckpoint]{take: func(k protocol.HostCheckpoint) error {
		if files += len(k.Files); len(*list) == mostKept || files > mostKept {
			return fmt.Errorf("list of checkpoints: more than %d checkpoints or files", mostKept)
		}
		if err := checkKept(k); err != nil {
			return fmt.Errorf("list of checkpoints: %w", err)
		}
		*list = append(*list, k)
		return nil
	}}
}

// listOfOutputs returns what reads a list of outputs.
func listOfOutputs(list *[]protocol.HostOutput) *lines[protocol.HostOutput] {
	return &lines[protocol.HostOutput]{take: func(o protocol.HostOutput) error {
		if len(*list) == protocol.MaxOutputs {
			return fmt.Errorf("more than %d outputs", protocol.MaxOutputs)
		}
		if err := checkOutput(o); err != nil {
			return fmt.Errorf("list of outputs: %w", err)
		}
		*list = append(*list, o)
		return nil
	}}
}

var placeName = sync.OnceValue(func() *regexp.Regexp {
	return regexp.MustCompile(`^((worker|ps)-[0-9]{1,9}|` + protocol.SharedPlace + `|` + protocol.TelemetryPlace + `)$`)
})

// checkOutput refuses what is no path below a folder of this machine.
func checkOutput(o protocol.HostOutput) error {
	sum, err := hex.DecodeString(o.Sum)
	switch {
	case !placeName().MatchString(o.Place):
		return fmt.Errorf("%.100q is no task", o.Place)
	case !fs.ValidPath(o.Name) || o.Name[0] == '.' || len(o.Name) > protocol.MaxOutputName || !filepath.IsLocal(filepath.FromSlash(o.Name)) ||
		strings.ContainsFunc(o.Name, unicode.IsControl):
		return fmt.Errorf("%.100q is no path of an output", o.Name)
	case o.Damage == "" && (err != nil || len(sum) != 32 || o.Size < 0):
		return fmt.Errorf("output %s has no valid sum or size", o.Name)
	}
	return nil
}

var plainName = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`^[A-Za-z0-9_][A-Za-z0-9._-]{0,199}$`) })

// checkKept refuses names that are no path below a folder of this machine.
func checkKept(k protocol.HostCheckpoint) error {
	if !fs.ValidPath(k.Folder) || k.Folder[0] == '.' || len(k.Folder) > 1000 || !filepath.IsLocal(filepath.FromSlash(k.Folder)) ||
		strings.ContainsFunc(k.Folder, unicode.IsControl) {
		return fmt.Errorf("%.100q is no folder of a checkpoint", k.Folder)
	}
	for _, f := range k.Files {
		if !plainName().MatchString(f.Name) || f.Size < 0 {
			return fmt.Errorf("checkpoint %s: %q is no file of a checkpoint", k.Folder, f.Name)
		}
	}
	return nil
}
