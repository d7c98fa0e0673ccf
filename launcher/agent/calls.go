//go:build linux

package agent

import (
	"context"
	"io"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/plx-run/plx/envsync"
	"github.com/plx-run/plx/envsync/venv"
	"github.com/plx-run/plx/envsync/venv/install"
	"github.com/plx-run/plx/gpuprobe"
	"github.com/plx-run/plx/launcher/agent/checkup"
	"github.com/plx-run/plx/launcher/agent/jobfolder"
	"github.com/plx-run/plx/launcher/agent/program"
	"github.com/plx-run/plx/launcher/agent/sampler"
	"github.com/plx-run/plx/launcher/agent/sockets"
	"github.com/plx-run/plx/launcher/protocol"
)

type none = struct{}

// session holds the state of one "plx agent start" process between the calls
// that it answers, until it gets a job.
type session struct {
	use     *jobfolder.HomeLock
	gpus    reservation
	seed    seed
	checkup checkup.Agent
	usage   hostUse
	job     *running // connection to a running job's agent, for which this process will relay the launcher's messages; nil before a Connect call
}

// methods returns the handlers of the calls that an agent answers before it
// gets a job.
func (s *session) methods() map[protocol.Method]protocol.Handler {
	return map[protocol.Method]protocol.Handler{
		protocol.DoSurvey:    protocol.Handle(survey),
		protocol.DoProbe:     protocol.Handle(probe),
		protocol.DoUse:       protocol.Handle(s.usage.answer),
		protocol.DoCheckName: protocol.Handle(checkName),
		protocol.DoInterfaces: protocol.Handle(func(context.Context, none) ([]protocol.Interface, error) {
			return sockets.Links()
		}),
		protocol.DoFind:    protocol.Handle(find),
		protocol.DoReserve: protocol.Handle(s.gpus.answer),
		protocol.DoSeed:    protocol.Handle(s.seed.begin),
		protocol.DoHas:     protocol.Handle(func(ctx context.Context, of protocol.Has) (none, error) { return none{}, has(ctx, of) }),
		protocol.DoVenv:    protocol.Handle(installVenv),
		protocol.DoPut:     piped(put),
		protocol.DoGet:     piped(get),
		protocol.DoFetch: protocol.HandleStream(func(_ context.Context, want protocol.FetchRequest, call *protocol.Answering) (none, error) {
			return none{}, fetch(want, call)
		}),
		protocol.DoExec:    protocol.HandleStream(guard),
		protocol.DoCheckup: protocol.Handle(s.checkup.Report),
		protocol.DoMeet:    protocol.Handle(s.checkup.DialPeers),
		protocol.DoDiscard: protocol.Handle(inJob(func(f jobfolder.Folder) (none, error) { return none{}, f.RemoveUnstarted() })),
		protocol.DoPrune: protocol.Handle(func(ctx context.Context, want protocol.PruneRequest) (protocol.PruneAnswer, error) {
			if want.All {
				return pruneAll(ctx, want, s.use)
			}
			return prune(ctx, want)
		}),
		protocol.DoKept:    protocol.Handle(func(_ context.Context, want protocol.WantKept) (protocol.Kept, error) { return storedHistory(want) }),
		protocol.DoReap:    protocol.Handle(inJob(func(f jobfolder.Folder) (none, error) { return none{}, reapJob(f) })),
		protocol.DoState:   protocol.Handle(inJob(stateOf)),
		protocol.DoConnect: protocol.Handle(s.connect),
	}
}

// piped returns a handler that calls do. The function do can read the data
// that the launcher streams during the call, and write data back.
func piped[In any](do func(context.Context, In, io.Reader, io.Writer) error) protocol.Handler {
	return protocol.HandleStream(func(ctx context.Context, want In, call *protocol.Answering) (none, error) {
		return none{}, do(ctx, want, call, call)
	})
}

// survey returns facts about the host (system, hardware), the GPU locks on it,
// and which of the requested blobs (files named by their SHA-256) are in its
// cache.
func survey(_ context.Context, of protocol.Survey) (protocol.Surveyed, error) {
	facts, err := envsync.DescribeHost()
	if err != nil {
		return protocol.Surveyed{}, err
	}
	has, damaged := envsync.CachedBlobs(of.Blobs)
	return protocol.Surveyed{Facts: facts, Has: has, Damaged: damaged, Locks: listLocks()}, nil
}

func probe(ctx context.Context, how protocol.Probe) (gpuprobe.Output, error) {
	return gpuprobe.Local(ctx, gpuprobe.Options{ToolTime: how.ToolTime})
}

// hostUse samples the CPU, memory and GPU use of the host. Sampling begins
// with the first DoUse call.
type hostUse struct {
	host *sampler.Host // nil before the first DoUse call
	// the method close closes quit, which ends the goroutine that samples the
	// host
	quit    chan struct{}
	running sync.WaitGroup
}

func (u *hostUse) answer(context.Context, none) (protocol.HostUse, error) {
	if u.host == nil {
		u.host, u.quit = sampler.NewHost(nil), make(chan struct{})
		u.running.Go(func() { u.host.Run(u.quit) })
		time.Sleep(sampler.MinInterval) // wait until the first sample exists
	}
	return u.host.Use(nil), nil
}

// close stops sampling the host and waits until the goroutine has ended.
func (u *hostUse) close() {
	if u.host != nil {
		close(u.quit)
		u.host.Close()
		u.running.Wait()
	}
}

// listLocks returns the lines of /proc/net/unix that belong to GPU locks,
// which are abstract Unix sockets. It returns "" if /proc/net/unix cannot be
// read; the agent reports that error when it takes locks.
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
	return none{}, checkNameFree(ctx, "", c.Name)
}

// find looks up the program that the tasks will run, and reports whether it
// links plx's trainer.
func find(ctx context.Context, want protocol.Find) (protocol.Found, error) {
	return program.Find(ctx, program.LoginOf(os.Environ()), want), nil
}

// installVenv installs a virtual environment if the host's cache holds all its
// files. ready reports whether the environment is installed now.
func installVenv(ctx context.Context, want venv.Request) (ready bool, err error) {
	dir, err := jobfolder.Envs()
	if err != nil {
		return false, err
	}
	files, err := jobfolder.Files()
	if err != nil {
		return false, err
	}
	ready, err = install.Environment(ctx, dir, files, want)
	return ready, damagedContent(err)
}

// inJob makes a handler from a function do that needs only a job's folder on
// this host.
func inJob[Out any](do func(jobfolder.Folder) (Out, error)) func(context.Context, protocol.HostJob) (Out, error) {
	return func(_ context.Context, of protocol.HostJob) (out Out, err error) {
		f, err := jobfolder.Of(of.Job, of.Folder)
		if err != nil {
			return out, err
		}
		return do(f)
	}
}

func stateOf(f jobfolder.Folder) (protocol.State, error) {
	s, err := readState(f)
	if err != nil {
		return s, err
	}
	return jobfolder.Current(s), nil
}
