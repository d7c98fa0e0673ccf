package launcher

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path"
	"path/filepath"
	"sync"

	"github.com/plx-run/plx/envsync"
	"github.com/plx-run/plx/hostfile"
	"github.com/plx-run/plx/launcher/protocol"
	"github.com/plx-run/plx/trainer/cluster"
)

// prepare starts an agent of the job on every new host. What it needs comes from
// a host that has it: this machine may not be the one that launched the job.
func (s *scaler) prepare(ctx context.Context, fresh []hostfile.Host, have []protocol.HostPlan) (err error) {
	if len(fresh) == 0 {
		return nil
	}
	if s.fleet, err = openFleet(ctx, Reach{Hosts: fresh, AcceptNewHostKeys: s.cfg.Reach.AcceptNewHostKeys}, s.voice); err != nil {
		return err
	}
	if err := s.fleet.survey(ctx); err != nil {
		return err
	}
	placed, err := place(s.fleet.machines(), placingOf(have))
	if err != nil {
		return err
	}
	s.voice.sayAll(placed.inUse(s.fleet.machines()))
	if err := s.fleet.checkTwins(placed, s.voice); err != nil {
		return err
	}
	if len(placed.hosts) < len(fresh) {
		return errors.New("some of the new hosts would have no tasks: leave them out")
	}
	if err := s.sync(ctx); err != nil {
		return err
	}
	return s.startAll(ctx, placed, len(have))
}

// placingOf is what the job seems to have been launched with: servers
// everywhere or nowhere, workers that see the devices of others or not.
func placingOf(have []protocol.HostPlan) placing {
	want := placing{noServers: true}
	for _, h := range have {
		seen, workers := map[string]bool{}, 0
		for _, t := range h.Tasks {
			if t.Task.Role == cluster.PS {
				want.noServers = false
				continue
			}
			workers++
			want.visibleHost = want.visibleHost || t.Devices != "" && seen[t.Devices]
			seen[t.Devices] = true
		}
	}
	return want
}

// sync brings the new hosts the agent, the program and the user's files.
func (s *scaler) sync(ctx context.Context) error {
	from := s.teller()
	if err := from.inspect(ctx); err != nil {
		return from.named(err)
	}
	var targets []envsync.Target
	for _, r := range s.fleet.remotes {
		if r.platform() != from.platform() {
			return fmt.Errorf("host %s is %s: the job's program there is for %s, that of host %s", r.host.Name, r.platform(), from.platform(), from.host.Name)
		}
		targets = append(targets, envsync.Target{Name: r.host.Name, Host: r, FileSystem: r.facts.FileSystem})
	}
	var err error
	if s.scratch, err = os.MkdirTemp("", "plx-scale-"); err != nil {
		return err
	}
	var blobs []envsync.Blob
	for _, sum := range append([]string{path.Base(from.binary), s.spec.Command.Blob}, s.spec.Archives...) {
		if sum == "" {
			continue // a command of the hosts' own
		}
		b, err := from.borrow(ctx, sum, s.scratch)
		if err != nil {
			return from.named(err)
		}
		blobs = append(blobs, b)
	}
	m := newMeter(s.cfg.Terminal, s.voice, "sending")
	err = envsync.Sync(ctx, targets, blobs, m.moved)
	m.close(err)
	return err
}

// borrow copies a blob from the host.
func (s *station) borrow(ctx context.Context, sum, dir string) (envsync.Blob, error) {
	if !safeName.MatchString(sum) {
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
	stderr := tail{limit: 4 << 10}
	err = s.Run(ctx, `exec cat "$HOME"/`+envsync.BlobPath(sum), nil, file, &stderr)
	if err != nil {
		err = explain(err, stderr.String())
	}
	if err := errors.Join(err, file.Close()); err != nil {
		return envsync.Blob{}, fmt.Errorf("copy %.12s, a file of the job: %w", sum, err)
	}
	b, err := envsync.FileBlob(file.Name())
	if err == nil && b.Sum != sum {
		err = fmt.Errorf("file %.12s of the job is damaged there", sum)
	}
	return b, err
}

// startAll starts the agents. They live on leases that are renewed from here
// until the job's conductor does so.
func (s *scaler) startAll(ctx context.Context, p placement, known int) error {
	n := len(p.hosts)
	s.fresh, s.conns, s.join = make([]*station, n), make([]*protocol.Conn, n), make([]protocol.Joining, n)
	errs := make([]error, n)
	var wg sync.WaitGroup
	for k, h := range p.hosts {
		wg.Go(func() {
			if err := s.startOne(ctx, k, known+k, h); err != nil {
				errs[k] = s.fleet.remotes[h.machine].named(err)
			}
		})
	}
	wg.Wait()
	return errors.Join(errs...)
}

func (s *scaler) startOne(ctx context.Context, k, index int, h placed) error {
	r := s.fleet.remotes[h.machine]
	st := &station{remote: r, job: s.Job, folder: r.folder(), binary: s.teller().binary}
	s.fresh[k] = st
	addr, err := r.dataAddr()
	if err != nil {
		return err
	}
	if err := st.reap(ctx); err != nil { // it may have had tasks of the job before
		return err
	}
	spec := s.spec
	spec.Host, spec.HostIndex, spec.Folder, spec.DataAddr, spec.Tasks = r.host.Name, index, st.folder, addr, nil
	conn, err := st.start(ctx, spec)
	if err != nil {
		return err
	}
	s.conns[k] = conn
	stop := context.AfterFunc(ctx, func() { conn.Close() })
	defer stop()
	state, err := attach(conn, true)
	if err != nil {
		return err
	}
	go keep(conn) // ends with conn
	s.join[k] = protocol.Joining{Addr: state.Addr, HostPlan: protocol.HostPlan{
		Host: r.host.Name, Folder: st.folder, Tasks: h.specs(), Line: r.host.String(), Binary: st.binary}}
	return nil
}

// endFresh ends the agents of hosts that did not come to join, unless the
// conductor has them: it has ended them then.
func (s *scaler) endFresh(why error) error {
	end := protocol.Message{End: &protocol.End{Verdict: protocol.Verdict{Code: CodePlx, Reason: "not scaled: " + why.Error()}}}
	errs := make([]error, len(s.fresh))
	var wg sync.WaitGroup
	for k, st := range s.fresh {
		if st == nil {
			continue
		}
		wg.Go(func() {
			ctx, cancel := context.WithTimeout(context.Background(), askTime)
			defer cancel()
			if c := s.conns[k]; c != nil {
				c.Send(end) // a failed one is left to its lease
			}
			if err := st.reap(ctx); err != nil {
				errs[k] = st.named(err)
			}
		})
	}
	wg.Wait()
	return errors.Join(errs...)
}

func (s *scaler) close() {
	for _, c := range s.conns {
		if c != nil {
			c.Close()
		}
	}
	if s.fleet != nil {
		s.fleet.Close() // nothing was written
	}
	if s.scratch != "" {
		os.RemoveAll(s.scratch)
	}
}
