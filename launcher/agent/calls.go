//go:build linux

package agent

import (
	"context"
	"errors"
	"os"
	"strings"

	"github.com/plx-run/plx/envsync"
	"github.com/plx-run/plx/envsync/venv"
	"github.com/plx-run/plx/envsync/venv/install"
	"github.com/plx-run/plx/gpuprobe"
	"github.com/plx-run/plx/launcher/agent/jobfolder"
	"github.com/plx-run/plx/launcher/agent/sockets"
	"github.com/plx-run/plx/launcher/protocol"
)

type none = struct{}

// methods are what the agent answers before it gets a job.
func methods(gpus *booking) map[protocol.Method]protocol.Handler {
	return map[protocol.Method]protocol.Handler{
		protocol.DoSurvey:    protocol.Handle(survey),
		protocol.DoProbe:     protocol.Handle(probe),
		protocol.DoCheckName: protocol.Handle(checkName),
		protocol.DoInterfaces: protocol.Handle(func(context.Context, none) ([]protocol.Interface, error) {
			return sockets.Links()
		}),
		protocol.DoReserve: protocol.Handle(gpus.answer),
		protocol.DoFurnish: protocol.Handle(func(ctx context.Context, of protocol.Furnish) (protocol.Furnished, error) {
			return protocol.Furnished{Done: furnish(ctx, of) == nil}, nil
		}),
		protocol.DoVenv:    protocol.Handle(installVenv),
		protocol.DoDiscard: protocol.Handle(discard),
	}
}

// survey answers what the host is, and which files it has.
func survey(_ context.Context, of protocol.Survey) (protocol.Surveyed, error) {
	facts, err := envsync.Here()
	if err != nil {
		return protocol.Surveyed{}, err
	}
	return protocol.Surveyed{Facts: facts, Has: envsync.Having(of.Blobs), Locks: listLocks()}, nil
}

func probe(ctx context.Context, how protocol.Probe) (protocol.GPUs, error) {
	found, err := gpuprobe.Here(ctx, gpuprobe.Options{ToolTime: how.ToolTime})
	return protocol.GPUs(found), err
}

// listLocks returns the lines of /proc/net/unix on locks of GPUs. Without that file there is none
// to show: the agent reports it when it takes the locks.
func listLocks() string {
	text, _ := os.ReadFile("/proc/net/unix")
	var locks strings.Builder
	for line := range strings.Lines(string(text)) {
		if strings.Contains(line, "@"+protocol.LockPrefix) && locks.Len() < protocol.MostLocks {
			locks.WriteString(line)
		}
	}
	return locks.String()
}

func checkName(ctx context.Context, c protocol.CheckName) (none, error) {
	err := claim(ctx, "", c.Name)
	if own := (coded{}); errors.As(err, &own) && own.code == codeTaken {
		err = &protocol.Failure{Code: protocol.CodeTaken, Text: err.Error()}
	}
	return none{}, err
}

// installVenv installs a virtual environment, if the host has its contents.
func installVenv(ctx context.Context, want venv.Request) (venv.Answer, error) {
	dir, err := jobfolder.Envs()
	if err != nil {
		return venv.Answer{}, err
	}
	files, err := jobfolder.Files()
	if err != nil {
		return venv.Answer{}, err
	}
	ready, err := install.Environment(ctx, dir, files, want)
	return venv.Answer{Ready: ready}, err
}

// discard removes what receive has made for a job that is not started.
func discard(_ context.Context, of protocol.HostJob) (none, error) {
	f, err := jobfolder.Of(of.Job, of.Folder)
	if err != nil {
		return none{}, err
	}
	return none{}, f.Discard()
}
