//go:build linux

package agent

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/plx-run/plx/launcher/agent/jobfolder"
	"github.com/plx-run/plx/launcher/agent/process"
	"github.com/plx-run/plx/launcher/agent/watchdog"
	"github.com/plx-run/plx/launcher/protocol"
	"github.com/plx-run/plx/trainer/cluster"
)

// start is "agent start": it reads a Spec from its standard input, starts the agent
// and relays between it and the standard streams.
func start(ctx context.Context, args []string, std streams) error {
	if len(args) != 0 {
		return usage("start takes no arguments")
	}
	launcher, err := protocol.Open(duplex{std})
	if err != nil {
		return err
	}
	first, err := launcher.Receive()
	if err != nil {
		return fmt.Errorf("receive the job's specification: %w", err)
	}
	if first.Spec == nil {
		return errors.New("the first message was not the job's specification")
	}
	spec := *first.Spec
	f, err := prepareFolder(ctx, spec)
	if err != nil {
		return fmt.Errorf("host %s: %w", spec.Host, err)
	}
	socket, err := watchdog.Start(ctx, f, spec)
	if err != nil {
		return errors.Join(fmt.Errorf("host %s: %w", spec.Host, err), abandon(f, spec, err))
	}
	return relayMessages(ctx, launcher, f, socket)
}

// duplex makes one stream of standard input and output.
type duplex struct{ streams }

func (d duplex) Read(p []byte) (int, error)  { return d.in.Read(p) }
func (d duplex) Write(p []byte) (int, error) { return d.out.Write(p) }

// Close closes the streams that can be closed. The process is about to end.
func (d duplex) Close() error {
	var errs []error
	for _, end := range []any{d.in, d.out} {
		if c, ok := end.(io.Closer); ok {
			errs = append(errs, c.Close())
		}
	}
	return errors.Join(errs...)
}

// prepareFolder makes the job's folder on this host and fills it.
func prepareFolder(ctx context.Context, spec protocol.Spec) (jobfolder.Folder, error) {
	f, err := jobfolder.Of(spec.Job, spec.Folder)
	if err != nil {
		return "", err
	}
	if len(spec.Secret) != cluster.SecretSize {
		return "", fmt.Errorf("the job's secret has %d bytes, want %d", len(spec.Secret), cluster.SecretSize)
	}
	least, err := f.Create(spec.Secret)
	if err != nil {
		return "", err
	}
	if err := fill(ctx, f, spec, least); err != nil {
		return "", errors.Join(err, abandon(f, spec, err))
	}
	return f, nil
}

// fill writes what the folder has besides the secret. least is the first generation
// that the agent may prepare.
func fill(ctx context.Context, f jobfolder.Folder, spec protocol.Spec, least int) error {
	own, err := process.Read(os.Getpid())
	if err != nil {
		return err
	}
	// Until the watchdog runs, this process is recorded in its place.
	state := jobfolder.FirstState(spec)
	state.Watchdog, state.WatchdogStart, state.Least = own.PID, own.Start, least
	if err := f.WriteState(state); err != nil {
		return err
	}
	if err := claim(ctx, spec.Job, spec.Checkpoints); err != nil {
		return err
	}
	if err := f.RecordBlobs(spec); err != nil {
		return err
	}
	return f.Furnish(ctx, spec.Tasks, spec.Archives)
}

// abandon records that the agent was not started, and deletes the secret.
func abandon(f jobfolder.Folder, spec protocol.Spec, cause error) error {
	state := jobfolder.FirstState(spec)
	if before, err := f.ReadState(); err == nil {
		state.Least = before.Least
	}
	return errors.Join(f.RemoveSecret(), f.WriteState(jobfolder.Ended(state, cause.Error())))
}
