package hosts

import (
	"context"
	"errors"
	"io"
	"strings"
	"time"

	"github.com/plx-run/plx/envsync"
	"github.com/plx-run/plx/envsync/tree"
	"github.com/plx-run/plx/launcher/console"
)

// sendFolder brings the contents of a folder to hosts that have the agent's binary.
func sendFolder(ctx context.Context, to []*AgentHost, f *tree.Folder, progress envsync.Progress) error {
	var targets []tree.Target
	for _, a := range to {
		targets = append(targets, tree.Target{Name: a.Name(), FileSystem: a.Facts.FileSystem, Host: receiver{a}})
	}
	return tree.Send(ctx, targets, f, progress)
}

// discardTime bounds the removal of working directories that no job will use.
const discardTime = 10 * time.Second

// SendWorkdir brings the contents of a folder to the hosts of a job, and makes the
// working directory there, with the files of the archives with the given sums. A working
// directory that a host has already stays as it is. After an error no host has a new one.
// bar may be nil.
func SendWorkdir(ctx context.Context, to []*AgentHost, f *tree.Folder, archives []string, bar *console.Transfer) error {
	var progress envsync.Progress
	if bar != nil {
		progress = bar.Moved
	}
	var targets []tree.Target
	for _, a := range to {
		command := tree.Receive + a.where() + " " + strings.Join(archives, " ")
		targets = append(targets, tree.Target{Name: a.Name(), FileSystem: a.Facts.FileSystem, Host: receiver{a}, Command: command})
	}
	err := tree.Send(ctx, targets, f, progress)
	if err != nil {
		Discard(ctx, to)
	}
	return err
}

// TakeFolder copies the folder of a manifest from a host into dir on this machine.
func TakeFolder(ctx context.Context, from *AgentHost, manifest, dir string) (*tree.Folder, error) {
	id, err := tree.ParseSum(manifest)
	if err != nil {
		return nil, from.Named(err)
	}
	f, err := tree.Take(ctx, receiver{from}, id, dir)
	if err != nil {
		return nil, from.Named(err)
	}
	return f, nil
}

// receiver is an AgentHost whose errors are in the words of the agent.
type receiver struct{ *AgentHost }

// Call runs a command of the agent.
func (r receiver) Call(ctx context.Context, command string, stdin io.Reader, stdout io.Writer) error {
	err := r.AgentHost.Call(ctx, command, stdin, stdout)
	var said *ScriptError
	if text, ok := "", errors.As(err, &said); ok {
		if text, ok = strings.CutPrefix(said.Stderr, "plx agent: "); ok {
			return errors.New(text)
		}
	}
	return err
}
