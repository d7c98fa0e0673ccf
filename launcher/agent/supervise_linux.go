package agent

import (
	"context"
	"errors"
	"log"
	"net"
	"os"
	"os/signal"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"

	"github.com/plx-run/plx/envsync"
	"github.com/plx-run/plx/launcher/protocol"
	"github.com/plx-run/plx/trainer/cluster"
)

// supervisorMain is "agent supervisor FOLDER", started by the guardian.
func supervisorMain(_ context.Context, args []string, _ streams) error {
	if len(args) != 1 {
		return usage("supervisor: want a folder")
	}
	s, err := newSupervisor(folder(args[0]))
	if err != nil {
		return errors.Join(err, answer(readiness{Error: err.Error()}))
	}
	terms := make(chan os.Signal, 4)
	signal.Notify(terms, unix.SIGTERM, unix.SIGUSR1)
	ignored := make(chan os.Signal, 1)
	signal.Notify(ignored, unix.SIGHUP, unix.SIGINT, unix.SIGQUIT, unix.SIGPIPE) // not ignored: tasks would inherit that
	lost := make(chan struct{})
	go func() {
		defer close(lost)
		_, _ = os.NewFile(lifeFD, "guardian").Read(make([]byte, 1)) // nobody writes: it ends with the guardian
	}()
	ctx, stop := context.WithCancel(context.Background())
	defer stop()
	s.open(ctx)
	if err := answer(readiness{Socket: s.state.Socket}); err != nil {
		s.log.Printf("whoever started the agent is gone: %v", err) // the lease decides
	}
	s.run(os.NewFile(beatFD, "beat"), lost, terms)
	return s.leave()
}

// newSupervisor makes a supervisor that does nothing yet.
func newSupervisor(f folder) (*supervisor, error) {
	spec, err := receiveSpec()
	if err != nil {
		return nil, err
	}
	s := &supervisor{spec: spec, folder: f,
		login: without(os.Environ(), markAgent+"=", markFolder+"="),
		log:   log.New(os.Stderr, "supervisor: ", log.LstdFlags|log.Lmicroseconds),
		lease: newLease(spec.Lease, spec.Grace, uptime),
		calls: make(chan func()), quit: make(chan struct{}),
		visitors: map[*link]bool{},
	}
	if s.cores, err = allowedCores(); err != nil {
		return nil, err
	}
	if s.kids, err = newChildren(); err != nil {
		return nil, err
	}
	if s.local, s.state.Socket, err = listenLocal(); err != nil {
		return nil, err
	}
	s.data, s.noData = listenData(s.place())
	return s, s.introduce()
}

// introduce writes the first state.
func (s *supervisor) introduce() error {
	own, err := readProcess(os.Getpid())
	if err != nil {
		return err
	}
	parent, err := readProcess(own.parent)
	if err != nil {
		return err
	}
	before, err := readState(s.folder)
	if err != nil {
		return err
	}
	socket := s.state.Socket
	s.state = firstState(s.spec)
	s.state.Socket, s.state.Least = socket, before.Least
	s.state.Guardian, s.state.GuardianStart = parent.pid, parent.start
	s.state.Supervisor, s.state.SupervisorStart = own.pid, own.start
	if s.data != nil {
		s.state.Addr = s.data.Addr().String()
	}
	return writeState(s.folder, s.state)
}

func firstState(spec protocol.Spec) protocol.State {
	return protocol.State{
		Job: spec.Job, Name: spec.Name, Host: spec.Host, HostIndex: spec.HostIndex, Detached: spec.Detached, Lease: spec.Lease,
		Folder: spec.Folder, Binary: ownBlob(), Checkpoints: spec.Checkpoints,
		Phase: protocol.Idle, Machine: machine(), Started: time.Now(),
	}
}

// ownBlob is this executable's place under the home, by which later commands
// call it. It was started from there, by its content hash.
func ownBlob() string {
	path, err := os.Executable()
	if err != nil {
		return ""
	}
	return envsync.BlobPath(filepath.Base(path))
}

// open begins to take connections.
func (s *supervisor) open(ctx context.Context) {
	s.saver = newSaver(s.folder)
	s.work.Go(func() {
		s.accept(ctx, s.local, func(c net.Conn) error { return sameUser(c.(*net.UnixConn)) })
	})
	if s.data == nil {
		return
	}
	g := &gate{key: cluster.PeerKey(s.spec.Secret, 0), self: agentName(s.spec.HostIndex), limit: maxUnproved}
	s.work.Go(func() {
		s.accept(ctx, s.data, func(c net.Conn) error { return g.prove(ctx, c) })
	})
}

// leave ends what run has left: the state goes to disk and connections get
// what is queued. A conductor of our own hears of our end and waits for that
// of the other hosts, and visitors wait with it.
func (s *supervisor) leave() error {
	err := s.saver.close(5 * time.Second)
	err = errors.Join(err, s.local.Close())
	if s.data != nil {
		err = errors.Join(err, s.data.Close())
	}
	var links []*link
	if s.conductor != nil {
		links = append(links, s.conductor)
		s.conductor.finish()
	}
	if s.conducts != nil {
		within(max(s.spec.Grace, s.spec.Lease)+killTime+15*time.Second, s.conducts)
	}
	for l := range s.visitors {
		links = append(links, l)
		l.finish()
	}
	for _, l := range links {
		within(parting+time.Second, l.sent)
	}
	idle := make(chan struct{})
	go func() {
		defer close(idle)
		s.work.Wait()
	}()
	within(parting, idle) // what is stuck ends with the process
	return err
}
