package jobs

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path"
	"path/filepath"

	"github.com/plx-run/plx/envsync"
	"github.com/plx-run/plx/hostfile"
	"github.com/plx-run/plx/launcher/console"
	"github.com/plx-run/plx/launcher/hosts"
	"github.com/plx-run/plx/launcher/placement"
	"github.com/plx-run/plx/launcher/protocol"
	"github.com/plx-run/plx/trainer/cluster"
)

// prepare starts an agent of the job on every new host. It copies the job's files from a
// host of the job: this machine may not be the one that launched it.
func (s *scaler) prepare(ctx context.Context, fresh []hostfile.Host, have []protocol.HostPlan) (err error) {
	if len(fresh) == 0 {
		return nil
	}
	if s.set, err = hosts.Open(ctx, hosts.Reach{Hosts: fresh, AcceptNewHostKeys: s.cfg.Reach.AcceptNewHostKeys}, s.job.printer); err != nil {
		return err
	}
	if err := s.set.Survey(ctx); err != nil {
		return err
	}
	placed, err := placement.Place(s.set.Machines(), wishesOf(have))
	if err != nil {
		return err
	}
	notes, err := placed.Conflicts(s.set.Machines())
	s.job.printer.Lines(notes)
	if err != nil {
		return err
	}
	if len(placed.Hosts) < len(fresh) {
		return errors.New("some of the new hosts would have no tasks: leave them out")
	}
	if err := s.send(ctx); err != nil {
		return err
	}
	return s.start(ctx, placed, len(have))
}

// wishesOf guesses with which wishes the job was launched: whether there are servers, and
// whether a worker sees the devices of its host's other workers.
func wishesOf(have []protocol.HostPlan) placement.Wishes {
	want := placement.Wishes{NoServers: true}
	for _, h := range have {
		seen := map[string]bool{}
		for _, t := range h.Tasks {
			if t.Task.Role == cluster.PS {
				want.NoServers = false
				continue
			}
			want.VisibleHost = want.VisibleHost || t.Devices != "" && seen[t.Devices]
			seen[t.Devices] = true
		}
	}
	return want
}

// send brings the new hosts the agent, the program and the user's files.
func (s *scaler) send(ctx context.Context) error {
	from := s.job.chief()
	if err := from.Inspect(ctx); err != nil {
		return from.Named(err)
	}
	for _, h := range s.set.Hosts {
		if h.Facts.Platform != from.Facts.Platform {
			return fmt.Errorf("host %s is %s, and the job's program on host %s is for %s", h.Name(), h.Facts.Platform, from.Name(), from.Facts.Platform)
		}
	}
	var err error
	if s.scratch, err = os.MkdirTemp("", "plx-scale-"); err != nil {
		return err
	}
	var blobs []envsync.Blob
	for _, sum := range append([]string{path.Base(from.Binary), s.spec.Command.Blob}, s.spec.Archives...) {
		if sum == "" {
			continue // the program is a command of the hosts
		}
		b, err := copyBlob(ctx, from.Host, sum, s.scratch)
		if err != nil {
			return from.Named(err)
		}
		blobs = append(blobs, b)
	}
	return hosts.SendAll(ctx, s.set.Hosts, blobs, console.NewProgressBar(s.cfg.Terminal, s.job.printer, "sending"))
}

// copyBlob copies a blob from a host to the folder dir, unless it is this process's
// binary.
func copyBlob(ctx context.Context, from *hosts.Host, sum, dir string) (envsync.Blob, error) {
	if !hosts.IsSafe(sum) {
		return envsync.Blob{}, fmt.Errorf("%q is no blob's name", sum)
	}
	if self, err := os.Executable(); err == nil {
		if own, err := envsync.FileBlob(self); err == nil && own.Sum == sum {
			return own, nil
		}
	}
	file, err := os.OpenFile(filepath.Join(dir, sum), os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o700)
	if err != nil {
		return envsync.Blob{}, err
	}
	err = from.Script(ctx, `exec cat "$HOME"/`+envsync.BlobPath(sum), nil, file)
	if err := errors.Join(err, file.Close()); err != nil {
		return envsync.Blob{}, fmt.Errorf("copy %.12s, a file of the job: %w", sum, err)
	}
	b, err := envsync.FileBlob(file.Name())
	if err == nil && b.Sum != sum {
		err = fmt.Errorf("file %.12s of the job is damaged there", sum)
	}
	return b, err
}

// start starts the agents of the new hosts. This process renews their leases until the
// job's driver does.
func (s *scaler) start(ctx context.Context, p placement.Placement, known int) error {
	var starts []hosts.Start
	for k, placed := range p.Hosts {
		h := s.set.Hosts[placed.Machine]
		addr, err := h.DataAddr()
		if err != nil {
			return h.Named(err)
		}
		spec := s.spec
		spec.Host, spec.HostIndex, spec.Folder, spec.DataAddr, spec.Tasks = h.Name(), known+k, h.JobFolder(), addr, nil
		a := &hosts.AgentHost{Host: h, Job: s.job.Job, Folder: spec.Folder, Binary: s.job.chief().Binary}
		starts = append(starts, hosts.Start{Agent: a, Spec: spec, Again: true})
	}
	s.group = hosts.NewGroup(starts)
	if err := s.group.Start(ctx); err != nil {
		return err
	}
	for k, placed := range p.Hosts {
		a := starts[k].Agent
		s.join = append(s.join, protocol.Joining{Addr: s.group.Addrs[k], HostPlan: protocol.HostPlan{
			Host: a.Name(), Folder: a.Folder, Tasks: placed.Specs(), Line: a.Resource.String(), Binary: a.Binary}})
	}
	return nil
}
