package agent

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/plx-run/plx/envsync"
	"github.com/plx-run/plx/launcher/protocol"
	"github.com/plx-run/plx/trainer/cluster"
)

// start is "agent start": it takes a Spec from its standard input, starts the
// agent and relays between it and the standard streams.
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
	socket, err := startAgent(ctx, f, spec)
	if err != nil {
		return errors.Join(fmt.Errorf("host %s: %w", spec.Host, err), abandon(f, spec, err))
	}
	return relayMessages(ctx, launcher, f, socket)
}

// duplex makes one stream of two.
type duplex struct{ streams }

func (d duplex) Read(p []byte) (int, error)  { return d.in.Read(p) }
func (d duplex) Write(p []byte) (int, error) { return d.out.Write(p) }

// Close closes what can be closed: the process is about to end.
func (d duplex) Close() error {
	var errs []error
	for _, end := range []any{d.in, d.out} {
		if c, ok := end.(io.Closer); ok {
			errs = append(errs, c.Close())
		}
	}
	return errors.Join(errs...)
}

// prepareFolder makes the job's folder on this host and fills those of the
// tasks.
func prepareFolder(ctx context.Context, spec protocol.Spec) (folder, error) {
	f, err := folderOf(spec.Job, spec.Folder)
	if err != nil {
		return "", err
	}
	if len(spec.Secret) != cluster.SecretSize {
		return "", fmt.Errorf("the job's secret has %d bytes, want %d", len(spec.Secret), cluster.SecretSize)
	}
	least, err := f.create(spec.Secret)
	if err != nil {
		return "", err
	}
	if err := fill(ctx, f, spec, least); err != nil {
		return "", errors.Join(err, abandon(f, spec, err))
	}
	return f, nil
}

// fill writes what the folder holds beside the secret. least is the first
// generation that may be prepared there.
func fill(ctx context.Context, f folder, spec protocol.Spec, least int) error {
	own, err := readProcess(os.Getpid())
	if err != nil {
		return err
	}
	// Until the guardian is there, this process stands for it.
	state := firstState(spec)
	state.Guardian, state.GuardianStart, state.Least = own.pid, own.start, least
	if err := writeState(f, state); err != nil {
		return err
	}
	if err := claim(ctx, spec.Job, spec.Checkpoints); err != nil {
		return err
	}
	if err := recordBlobs(f, spec); err != nil {
		return err
	}
	return f.furnish(ctx, spec.Tasks, spec.Archives)
}

// furnish makes the working folders of tasks, with the files that the user
// sent. A folder that is there is left as it is: a later generation finds it as
// the one before left it.
func (f folder) furnish(ctx context.Context, tasks []protocol.TaskSpec, archives []string) error {
	for _, t := range tasks {
		if _, err := os.Stat(f.task(t.Task)); err == nil {
			continue
		}
		if err := f.furnishOne(ctx, f.task(t.Task), archives); err != nil {
			return fmt.Errorf("make the folder of %s: %w", t.Task, err)
		}
	}
	return nil
}

// furnishOne fills a folder under another name first, so that one that is
// there is whole.
func (f folder) furnishOne(ctx context.Context, dir string, archives []string) error {
	if err := os.MkdirAll(filepath.Dir(dir), 0o700); err != nil {
		return err
	}
	temporary, err := os.MkdirTemp(filepath.Dir(dir), "."+filepath.Base(dir)+"-"+hostPid()+"-*")
	if err != nil {
		return err
	}
	for _, sum := range archives {
		if err := unpack(ctx, sum, temporary); err != nil {
			return errors.Join(fmt.Errorf("unpack files: %w", err), os.RemoveAll(temporary))
		}
	}
	if err := os.Rename(temporary, dir); err != nil {
		return errors.Join(err, os.RemoveAll(temporary))
	}
	return nil
}

func unpack(ctx context.Context, sum, dir string) error {
	path, err := blobPath(sum)
	if err != nil {
		return err
	}
	archive, err := os.Open(path)
	if err != nil {
		return err
	}
	defer archive.Close() // only read
	return envsync.Unpack(ctx, archive, dir)
}

// recordBlobs keeps for prune which blobs the job uses, this program among
// them.
func recordBlobs(f folder, spec protocol.Spec) error {
	sums := append([]string{}, spec.Archives...)
	if spec.Command.Blob != "" {
		sums = append(sums, spec.Command.Blob)
	}
	if own, err := os.Executable(); err == nil {
		if sum := own[strings.LastIndexByte(own, '/')+1:]; len(sum) == 64 {
			sums = append(sums, sum)
		}
	}
	if err := replace(f.blobs(), []byte(strings.Join(sums, "\n")+"\n")); err != nil {
		return fmt.Errorf("record the job's files: %w", err)
	}
	return nil
}

// abandon leaves a folder without secret and with the reason.
func abandon(f folder, spec protocol.Spec, cause error) error {
	state := firstState(spec)
	if before, err := readState(f); err == nil {
		state.Least = before.Least
	}
	state.Phase = protocol.Over
	state.Verdict = &protocol.Verdict{Code: codePlx, Host: spec.Host, Reason: fmt.Sprintf("host %s: %v", spec.Host, cause)}
	err := os.Remove(f.secret())
	if errors.Is(err, os.ErrNotExist) {
		err = nil
	}
	return errors.Join(err, writeState(f, state))
}

// starting bounds the agent's own start.
const starting = 30 * time.Second

// startAgent starts the guardian, hands the Spec on through a pipe and returns
// the name of the agent's local socket.
func startAgent(ctx context.Context, f folder, spec protocol.Spec) (string, error) {
	text, err := json.Marshal(spec)
	if err != nil {
		return "", fmt.Errorf("encode the job's specification: %w", err)
	}
	specRead, specWrite, err := os.Pipe()
	if err != nil {
		return "", fmt.Errorf("start the agent: %w", err)
	}
	defer specWrite.Close()
	readyRead, readyWrite, err := os.Pipe()
	if err != nil {
		return "", errors.Join(fmt.Errorf("start the agent: %w", err), specRead.Close())
	}
	defer readyRead.Close()
	guardian, err := spawn(ctx, f, spec.Detached, specRead, readyWrite)
	specRead.Close() // the guardian has its own
	readyWrite.Close()
	if err != nil {
		return "", fmt.Errorf("start the agent: %w", err)
	}
	deadline := time.Now().Add(starting)
	specWrite.SetDeadline(deadline) // pipes have deadlines
	readyRead.SetDeadline(deadline)
	_, wrote := specWrite.Write(text)
	specWrite.Close() // the supervisor reads to the end
	var r readiness
	err = json.NewDecoder(readyRead).Decode(&r)
	if err == nil && r.Error == "" {
		return r.Socket, guardian.Process.Release()
	}
	_ = guardian.Process.Kill() // its supervisor, if any, notices and ends
	_ = guardian.Wait()
	if r.Error != "" {
		return "", fmt.Errorf("start the agent: %s", r.Error)
	}
	return "", fmt.Errorf("start the agent: %w; see %s", errors.Join(err, wrote), f.log())
}
