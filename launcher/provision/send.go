package provision

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"sync"
	"time"

	"github.com/plx-run/plx/envsync"
	"github.com/plx-run/plx/envsync/tree"
	"github.com/plx-run/plx/launcher/console"
	"github.com/plx-run/plx/launcher/hosts"
	"github.com/plx-run/plx/launcher/protocol"
)

// Sending is how files are sent to hosts. The zero value is useful.
type Sending struct {
	Bar *console.Transfer // shows the progress; nil: nothing does
	// Printer is told if hosts cannot pass files on to each other; nil: nobody is.
	Printer *console.Printer
	// PortLow and PortHigh are the first and last port for that; 0 and 0: any.
	PortLow, PortHigh int
}

// options returns the options of tree.Send for files with a name; "": that of the tree.
func (s Sending) options(name string) tree.SendOptions {
	o := tree.SendOptions{Low: s.PortLow, High: s.PortHigh}
	if s.Bar != nil {
		o.Progress = func(host, what string, sent, total int64) { s.Bar.Moved(host, cmp.Or(name, what), sent, total) }
	}
	if s.Printer != nil {
		o.Lost = func(what []string) {
			more := ""
			if n := len(what) - 1; n > 0 {
				more = fmt.Sprintf(" (and %s more)", console.Count(n, "host"))
			}
			s.Printer.Printf("hosts could not pass files on to each other, so this machine has sent them: %s%s", what[0], more)
		}
	}
	return o
}

// lacking asks the agents of hosts, all at once, for a folder. It returns the hosts to which the
// folder is to be sent.
func lacking(ctx context.Context, to []*hosts.AgentHost, f *tree.Folder, want func(*hosts.AgentHost) protocol.Has) []*hosts.AgentHost {
	_, size := f.Files()
	id, limit := f.ID().String(), tree.AnswerLimit(size)
	done := make([]bool, len(to))
	var asked sync.WaitGroup
	for i, a := range to {
		asked.Go(func() {
			w := want(a)
			w.Manifest = id
			_, err := hosts.Call[struct{}](ctx, a, limit, protocol.DoHas, w)
			done[i] = err == nil
		})
	}
	asked.Wait()
	var left []*hosts.AgentHost
	for i, a := range to {
		if !done[i] {
			left = append(left, a)
		}
	}
	return left
}

// sendFolder brings the contents of a folder to hosts that have the agent's binary. name is
// that of the folder for the display.
func sendFolder(ctx context.Context, to []*hosts.AgentHost, f *tree.Folder, name string, how Sending) error {
	var targets []tree.Target
	for _, a := range lacking(ctx, to, f, func(*hosts.AgentHost) protocol.Has { return protocol.Has{} }) {
		targets = append(targets, target(a, protocol.Put{}))
	}
	return tree.Send(ctx, targets, f, how.options(name))
}

// sendProgram brings a program to hosts that have the agent's binary, to where blobs are.
func sendProgram(ctx context.Context, to []*hosts.AgentHost, program envsync.Blob, how Sending) error {
	var targets []tree.Target
	for _, a := range to {
		if !a.Has(program) {
			targets = append(targets, target(a, protocol.Put{Program: true}))
		}
	}
	if len(targets) == 0 {
		return nil
	}
	f, err := tree.Gather(ctx, []string{program.Path}, tree.Options{Cache: hashCache()})
	if err == nil && f.Entries[0].Sum.String() != program.Sum {
		err = &tree.ChangedError{Path: program.Name}
	}
	if err == nil {
		err = tree.Send(ctx, targets, f, how.options(program.Name))
	}
	return err
}

// target returns the host as one that is put files.
func target(a *hosts.AgentHost, want protocol.Put) tree.Target {
	addr, err := a.DataAddr()
	if err != nil {
		addr = "" // it passes nothing on
	}
	return tree.Target{Name: a.Name(), FileSystem: a.Facts.FileSystem, Addr: addr, Put: func(ctx context.Context, stdin io.Reader, stdout io.Writer) error {
		return hosts.Pipe(ctx, a, protocol.DoPut, want, stdin, stdout)
	}}
}

// discardTime bounds the removal of working directories that no job will use.
const discardTime = 10 * time.Second

// sendWorkdir brings the contents of a folder to the hosts of a job, and makes the
// working directory there. A working directory that a host has already stays as it is. After an error no host has a new one.
func sendWorkdir(ctx context.Context, to []*hosts.AgentHost, f *tree.Folder, how Sending) error {
	var targets []tree.Target
	for _, a := range lacking(ctx, to, f, func(a *hosts.AgentHost) protocol.Has {
		return protocol.Has{Job: a.Job, Folder: a.Folder}
	}) {
		targets = append(targets, target(a, protocol.Put{Job: a.Job, Folder: a.Folder}))
	}
	err := tree.Send(ctx, targets, f, how.options(""))
	if err != nil {
		discard(ctx, to)
	}
	return err
}

// takeFolder copies the folder of a manifest from a host into dir on this machine.
func takeFolder(ctx context.Context, from *hosts.AgentHost, manifest, dir string) (*tree.Folder, error) {
	id, err := tree.ParseSum(manifest)
	if err != nil {
		return nil, from.Named(err)
	}
	f, err := tree.Take(ctx, func(ctx context.Context, to io.Writer) error {
		return hosts.Pipe(ctx, from, protocol.DoGet, protocol.Get{Manifest: manifest}, nil, to)
	}, id, dir)
	if err != nil {
		return nil, from.Named(err)
	}
	return f, nil
}
