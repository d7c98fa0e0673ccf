package agent

import (
	"fmt"
	"net"
	"os"
	"strconv"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/plx-run/plx/launcher/protocol"
	"github.com/plx-run/plx/logs"
	"github.com/plx-run/plx/trainer/cluster"
)

// Where a task finds its inherited sockets, behind the standard streams.
const (
	listenFD  = 3
	controlFD = 4
)

// startTasks starts every task of the host. Those that cannot be started have
// an Exited before Started is sent.
func (s *supervisor) startTasks(m protocol.Start) {
	if s.ending != nil {
		return
	}
	if s.state.Phase == protocol.Running && s.state.Generation == m.Generation {
		s.tell(s.started()) // asked again after a lost connection
		return
	}
	if s.state.Phase != protocol.Ready || s.state.Generation != m.Generation {
		s.notice(fmt.Sprintf("asked to start generation %d, but is %s at generation %d",
			m.Generation, s.state.Phase, s.state.Generation))
		return
	}
	s.enter(protocol.Running)
	s.state.Least = m.Generation + 1
	for _, spec := range s.layout.Tasks {
		t := s.tasks[spec.Task]
		if err := s.launch(t, m); err != nil {
			t.closeSockets()
			t.now.Exit = t.refused(err)
			s.tell(protocol.Message{Exited: t.now.Exit})
		}
	}
	s.tell(s.started())
}

func (s *supervisor) started() protocol.Message {
	pids := map[cluster.Task]int{}
	for name, t := range s.tasks {
		if t.body != nil {
			pids[name] = t.child.pid
		}
	}
	return protocol.Message{Started: &protocol.Started{Generation: s.state.Generation, PIDs: pids}}
}

// launch starts one task.
func (s *supervisor) launch(t *task, m protocol.Start) error {
	own, err := makeFolder(s.folder.task(t.Task))
	if err != nil {
		return err
	}
	cwd, err := chdir(string(s.spec.Command.Chdir), own)
	if err != nil {
		return err
	}
	cores := s.share(t.TaskSpec)
	contract := s.contract(t, m, own, len(cores))
	if t.heir != nil && !t.heir.child.over() {
		return s.carryOn(t, t.heir, contract, cwd)
	}
	env := taskEnviron(s.login, s.spec, contract, cwd)
	cmd, err := resolve(s.spec.Command, env, own)
	if err != nil {
		return err
	}
	b := &body{born: birth{t.Task, t.generation}, cores: cores, words: make(chan word, mostWords)}
	files, closeFiles, err := s.connect(t, b)
	if err != nil {
		return err
	}
	defer closeFiles()
	attr := &syscall.ProcAttr{Dir: cmd.dir, Env: env, Files: files, Sys: &syscall.SysProcAttr{
		Setsid: true,
		// The guardian kills the task when this process is killed; should
		// both be killed, this is what is left.
		Pdeathsig: syscall.SIGKILL,
	}}
	if !s.spec.Bind {
		cores = nil
	}
	err = cmd.run(func() (err error) {
		b.child, err = s.kids.start(cmd.path, cmd.argv, attr, cores)
		return err
	})
	if err != nil {
		b.disconnect()
		return err
	}
	t.give(b)
	s.follow(b)
	return nil
}

// share returns the cores of a worker; servers are not bound.
func (s *supervisor) share(t protocol.TaskSpec) []int {
	if t.Task.Role != cluster.Worker {
		return nil
	}
	return share(s.cores, t.LocalRank, protocol.Workers(s.layout.Tasks))
}

// contract is what the task is told.
func (s *supervisor) contract(t *task, m protocol.Start, dir string, cores int) cluster.Contract {
	c := cluster.Contract{
		Job: s.spec.Job, Generation: m.Generation, Task: t.Task,
		WorldSize: len(m.Cluster.Worker), LocalRank: t.LocalRank, LocalWorldSize: protocol.Workers(s.layout.Tasks),
		FirstWorldSize: s.spec.WorldSize,
		Cluster:        m.Cluster, ListenFD: listenFD, ControlFD: controlFD,
		SecretFile: s.folder.secret(), LogLevel: s.spec.LogLevel, Dir: dir,
		Foreign: cluster.Foreign{
			Cluster: m.Foreign, GroupRank: s.layout.GroupRank,
			Interface: interfaceOf(s.spec.DataAddr), Devices: t.Devices,
		},
	}
	c.Checkpoints, _ = checkpointsOf(s.spec.Checkpoints) // looked at when the agent was started
	if host, port, err := net.SplitHostPort(m.Foreign.Addr(cluster.Chief)); err == nil {
		c.Foreign.MasterAddr = host
		c.Foreign.MasterPort, _ = strconv.Atoi(port) // an agent wrote it
	}
	if !s.userSets("OMP_NUM_THREADS") {
		c.Foreign.Threads = cores
	}
	return c
}

// userSets reports whether the user or the login gives a variable a value.
func (s *supervisor) userSets(name string) bool {
	env := append([]string(nil), s.login...)
	for _, e := range s.spec.Env {
		env = append(env, string(e))
	}
	_, ok := lookup(env, name)
	return ok
}

// connect opens the task's streams and sockets, and keeps our ends in b. It returns the descriptors
// that the task inherits, and what closes this process's copies of them.
func (s *supervisor) connect(t *task, b *body) (files []uintptr, closeFiles func(), err error) {
	var ours []int
	closeFiles = func() {
		for _, fd := range ours {
			unix.Close(fd) // the task has its own
		}
		t.open.closeSocket()
	}
	defer func() {
		if err != nil {
			closeFiles()
			b.disconnect()
		}
	}()
	null, err := unix.Open(os.DevNull, unix.O_RDWR|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, nil, fmt.Errorf("open %s: %w", os.DevNull, err)
	}
	ours = append(ours, null)
	for i, stream := range []logs.Stream{logs.Stdout, logs.Stderr} {
		src := logs.Source{Task: t.Task.String(), Stream: stream}
		w, err := s.spool(t, src)
		if err != nil {
			return nil, nil, err
		}
		var fd int
		tell := func(text string) { s.do(func() { s.notice(text) }) }
		if b.outs[i], fd, err = newOutput(src.String(), w, tell); err != nil {
			w.Close() // nothing was written to it
			return nil, nil, err
		}
		ours = append(ours, fd)
	}
	control, theirs, err := cluster.ControlPair()
	if err != nil {
		return nil, nil, err
	}
	b.control = control
	defer theirs.Close() // a copy of it goes to the task
	fd, err := unix.FcntlInt(theirs.Fd(), unix.F_DUPFD_CLOEXEC, 0)
	if err != nil {
		return nil, nil, fmt.Errorf("control channel: %w", err)
	}
	ours = append(ours, fd)
	return []uintptr{uintptr(ours[0]), uintptr(ours[1]), uintptr(ours[2]), uintptr(t.open.fd), uintptr(fd)}, closeFiles, nil
}

// spool opens the log of one of a task's streams.
func (s *supervisor) spool(t *task, src logs.Source) (*logs.Writer, error) {
	w, err := logs.Create(s.folder.logs(), src)
	if err == nil && src.Stream == logs.Stderr && t.generation > 0 {
		// It parts what the generations said. A disk that is full is told of
		// at the task's own words.
		_, _ = fmt.Fprintf(w, "plx: generation %d\n", t.generation)
	}
	return w, err
}

// disconnect takes back what connect made for a process that did not start.
func (b *body) disconnect() {
	for _, o := range b.outs {
		if o != nil {
			o.pipe.Close() // nobody ever wrote to it
			o.Close()
		}
	}
	if b.control != nil {
		b.control.Close() // likewise
	}
}

// drain bounds the wait for the output of a task that has ended.
const drain = 2 * time.Second

// follow watches a process that was started, until all of it is known.
func (s *supervisor) follow(b *body) {
	heard := make(chan struct{})
	for _, o := range b.outs {
		s.work.Go(o.run)
	}
	s.work.Go(func() {
		defer close(heard)
		s.listen(b)
	})
	s.work.Go(func() { b.speak(b.child.done) })
	s.work.Go(func() {
		<-b.child.done
		s.do(func() { s.reaped(b.task) })
		deadline := time.Now().Add(drain)
		within(time.Until(deadline), heard)
		quiet := within(time.Until(deadline), b.outs[0].done)
		quiet = within(time.Until(deadline), b.outs[1].done) && quiet
		s.do(func() {
			if b.task == nil {
				s.left(b)
				return
			}
			s.exited(b.task, quiet)
		})
	})
}
