package hosts

import (
	"context"
	"errors"
	"io"
	"strings"

	"github.com/plx-run/plx/envsync"
	"github.com/plx-run/plx/envsync/tree"
)

// SendFolder brings the contents of a folder to hosts that have the agent's binary.
func SendFolder(ctx context.Context, to []*AgentHost, f *tree.Folder, progress envsync.Progress) error {
	var targets []tree.Target
	for _, a := range to {
		targets = append(targets, tree.Target{Name: a.Name(), FileSystem: a.Facts.FileSystem, Host: receiver{a}})
	}
	return tree.Send(ctx, targets, f, progress)
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
