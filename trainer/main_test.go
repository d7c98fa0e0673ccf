package trainer

import (
	"bytes"
	"cmp"
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"gorgonia.org/tensor"

	"github.com/plx-run/plx/internal/test/patience"
	"github.com/plx-run/plx/trainer/cluster"
	"github.com/plx-run/plx/trainer/config"
)

// TestMain runs the test binary as a trainer program if the environment
// variable TRAINER_TEST is set.
func TestMain(m *testing.M) {
	if os.Getenv("TRAINER_TEST") != "" {
		Main(testProgram)
	}
	os.Exit(m.Run())
}

// testProgram is the program of a trainer process in tests. TRAINER_TEST holds
// the number of steps, "forever", or "fail". A second word sets
// Config.PeerTimeout.
func testProgram(ctx context.Context, j *Job) error {
	what, longest, _ := strings.Cut(os.Getenv("TRAINER_TEST"), " ")
	steps, forever := 0, what == "forever"
	if what == "fail" {
		return errors.New("no such file")
	}
	fmt.Sscan(what, &steps) // stays 0 for forever
	silence, err := time.ParseDuration(cmp.Or(longest, patience.Limit.String()))
	if err != nil {
		return err
	}
	r, err := j.Parallelize(ctx, mlp(tensor.Float32, Mean, 8, 6, 3), SGD(0.1), GlobalBatch(12), PeerTimeout(silence))
	if err != nil {
		return err
	}
	each := 12 / j.NumWorkers()
	for step := 0; step < steps || forever; step++ {
		result, err := r.Step(ctx, rows(tensor.Float32, step, j.WorkerID()*each, (j.WorkerID()+1)*each, 8, 3))
		if err != nil {
			return err
		}
		if j.IsChief() {
			fmt.Printf("step %d loss %.6f\n", step, result.Loss)
		}
	}
	return nil
}

// testProcess is a task that runs in a separate process, with the agent's end
// of the connection to it.
type testProcess struct {
	task    cluster.Task
	cmd     *exec.Cmd
	control *cluster.Control
	out     *watched
	stderr  bytes.Buffer
	waited  chan struct{}

	mu    sync.Mutex
	heard []cluster.ControlMessage
}

// watched collects the output of a process, so that a test can wait for a
// line.
type watched struct {
	mu   sync.Mutex
	text strings.Builder
	more chan struct{}
}

func (w *watched) Write(b []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	select {
	case w.more <- struct{}{}:
	default:
	}
	return w.text.Write(b)
}

func (w *watched) String() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.text.String()
}

// launch starts the processes of a job as plx's agent does, and returns them
// by the names of their tasks.
func launch(t *testing.T, program string, workers, servers int, flags ...string) map[string]*testProcess {
	t.Helper()
	secret, tasks := secretFile(t), tasksOf(workers, servers)
	spec, sockets := listeners(t, tasks)
	all := map[string]*testProcess{}
	for i, task := range tasks {
		contract := cluster.Contract{Job: "j1", Task: task, WorldSize: workers, LocalRank: task.Index,
			LocalWorldSize: workers, Cluster: spec, SecretFile: secret}
		all[task.String()] = startTask(t, contract, program, sockets[i], flags)
	}
	return all
}

// secretFile writes a job's secret.
func secretFile(t *testing.T) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "secret")
	if err := os.WriteFile(path, []byte(hex.EncodeToString(make([]byte, cluster.SecretSize))), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func tasksOf(workers, servers int) (tasks []cluster.Task) {
	for i := range servers {
		tasks = append(tasks, cluster.Task{Role: cluster.PS, Index: i})
	}
	for i := range workers {
		tasks = append(tasks, cluster.Task{Role: cluster.Worker, Index: i})
	}
	return tasks
}

// listeners opens a listening socket for each task.
func listeners(t *testing.T, tasks []cluster.Task) (spec cluster.Spec, sockets []*os.File) {
	t.Helper()
	for _, task := range tasks {
		ln, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		f, err := ln.(*net.TCPListener).File()
		if err != nil {
			t.Fatal(err)
		}
		ln.Close()
		spec.Set(task, ln.Addr().String())
		sockets = append(sockets, f)
	}
	return spec, sockets
}

func startTask(t *testing.T, c cluster.Contract, program string, socket *os.File, flags []string) *testProcess {
	t.Helper()
	control, theirs, err := cluster.ControlPair()
	if err != nil {
		t.Fatal(err)
	}
	c.ListenFD, c.ControlFD = 3, 4
	p := &testProcess{task: c.Task, control: control, waited: make(chan struct{}),
		out: &watched{more: make(chan struct{}, 1)}, cmd: exec.Command(os.Args[0], flags...)}
	p.cmd.Env = append(append(os.Environ(), "TRAINER_TEST="+program, "PLX_BLAS=gonum"), c.Environ()...)
	p.cmd.ExtraFiles = []*os.File{socket, theirs}
	p.cmd.Stdout, p.cmd.Stderr = p.out, &p.stderr
	if err := p.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	socket.Close()
	theirs.Close()
	var listening sync.WaitGroup
	listening.Go(p.listen)
	go func() { p.cmd.Wait(); listening.Wait(); close(p.waited) }()
	t.Cleanup(func() {
		p.cmd.Process.Kill() // it may have ended
		<-p.waited
		control.Close()
	})
	return p
}

func (p *testProcess) listen() {
	for {
		m, err := p.control.Receive()
		if err != nil {
			return
		}
		p.mu.Lock()
		p.heard = append(p.heard, m)
		p.mu.Unlock()
	}
}

// end waits for the process to exit. It returns the exit code and the messages
// to the agent that are not heartbeats.
func (p *testProcess) end(t *testing.T) (code int, said []cluster.ControlMessage) {
	t.Helper()
	select {
	case <-p.waited:
	case <-time.After(patience.Limit):
		t.Fatalf("%s did not end; stderr: %s", p.task, p.stderr.String())
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	said = slices.DeleteFunc(slices.Clone(p.heard), func(m cluster.ControlMessage) bool { return m.Kind == cluster.Heartbeat })
	return p.cmd.ProcessState.ExitCode(), said
}

// untilStep waits until the chief has printed a step later than n.
func (p *testProcess) untilStep(t *testing.T, n int) {
	t.Helper()
	deadline := time.After(patience.Limit)
	for !strings.Contains(p.out.String(), fmt.Sprintf("step %d ", n)) {
		select {
		case <-p.out.more:
		case <-p.waited:
			t.Fatalf("%s ended: %s", p.task, p.stderr.String())
		case <-deadline:
			t.Fatalf("no step %d; stderr: %s", n, p.stderr.String())
		}
	}
}

var hello = cluster.ControlMessage{Kind: cluster.Hello, Version: cluster.ControlVersion}

func wantSaid(t *testing.T, p *testProcess, code int, want ...cluster.ControlMessage) {
	t.Helper()
	got, said := p.end(t)
	for i := range said {
		said[i].Loss = "" // TestLast sees it
	}
	if got != code || !reflect.DeepEqual(said, want) {
		t.Errorf("%s: exit code %d, said %+v; want %d, %+v; stderr: %s", p.task, got, said, code, want, p.stderr.String())
	}
}

func TestJobOfProcesses(t *testing.T) {
	all := launch(t, "20", 2, 2, "--arch=ps")
	for _, name := range []string{"worker:0", "worker:1"} {
		wantSaid(t, all[name], 0, hello, cluster.ControlMessage{Kind: cluster.Finished, Step: 20})
	}
	if out := all["worker:0"].out.String(); strings.Count(out, "step ") != 20 {
		t.Errorf("the chief printed %q", out)
	}
	for _, name := range []string{"ps:0", "ps:1"} { // servers exit after the goodbye of the last worker
		wantSaid(t, all[name], 0, hello, cluster.ControlMessage{Kind: cluster.Finished})
	}
}

func TestStopEndsAllTasks(t *testing.T) {
	all := launch(t, "forever", 2, 1, "--arch=ps")
	all["worker:0"].untilStep(t, 5)
	stop := cluster.ControlMessage{Kind: cluster.Stop}
	if err := all["worker:0"].control.Send(stop); err != nil {
		t.Fatal(err)
	}
	if code, _ := all["worker:0"].end(t); code != exitStopped {
		t.Errorf("worker:0: exit code %d, want %d; stderr: %s", code, exitStopped, all["worker:0"].stderr.String())
	}
	for name, want := range map[string]int{"worker:1": exitStopped, "ps:0": 0} {
		p := all[name]
		p.control.Send(stop) // an error is ignored, because the process may have failed already after worker:0 was stopped
		code, _ := p.end(t)
		victim := code == exitFailed && strings.Contains(p.stderr.String(), "worker:0 (")
		if code != want && !victim {
			t.Errorf("%s: exit code %d, want %d; stderr: %s", name, code, want, p.stderr.String())
		}
	}
}

func TestInterruptStopsWorker(t *testing.T) {
	all := launch(t, "forever", 1, 0)
	worker := all["worker:0"]
	worker.untilStep(t, 2)
	worker.cmd.Process.Signal(os.Interrupt) // if the process has exited already, its exit code shows that below
	if code, _ := worker.end(t); code != 130 {
		t.Errorf("exit code %d, want 130; stderr: %s", code, worker.stderr.String())
	}
}

func TestSIGTERMStopsTasks(t *testing.T) {
	for name, code := range map[string]int{"worker:0": exitStopped, "ps:0": exitStopped} {
		all := launch(t, "forever", 1, 1, "--arch=ps")
		all["worker:0"].untilStep(t, 2)
		all[name].cmd.Process.Signal(syscall.SIGTERM) // if the process has exited already, its exit code shows that below
		got, said := all[name].end(t)
		if failed := said[len(said)-1].Kind == cluster.Failed; got != code || failed {
			t.Errorf("%s: exit code %d, said %+v; want %d; stderr: %s", name, got, said, code, all[name].stderr.String())
		}
		for _, p := range all { // the other worker fails because of the stopped one
			if p != all[name] {
				p.control.Send(cluster.ControlMessage{Kind: cluster.Stop}) // or is told to
				p.end(t)
			}
		}
	}
}

// If a process is killed or frozen, the errors of all tasks that wait for it
// must name it.
func TestLostProcessIsNamed(t *testing.T) {
	if testing.Short() {
		t.Skip("takes seconds")
	}
	for _, c := range []struct {
		name   string
		victim string
		signal syscall.Signal
	}{
		{"killed worker", "worker:1", syscall.SIGKILL},
		{"killed server", "ps:1", syscall.SIGKILL},
		{"frozen worker", "worker:1", syscall.SIGSTOP},
		{"frozen server", "ps:1", syscall.SIGSTOP},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			all := launch(t, "forever 4s", 2, 2, "--arch=ps")
			all["worker:0"].untilStep(t, 3)
			if err := all[c.victim].cmd.Process.Signal(c.signal); err != nil {
				t.Fatal(err)
			}
			code, said := all["worker:0"].end(t)
			last := said[len(said)-1]
			if code != exitFailed || last.Kind != cluster.Failed || last.Peer != c.victim {
				t.Errorf("exit code %d, said %+v", code, last)
			}
			if errs := all["worker:0"].stderr.String(); !strings.Contains(errs, c.victim+" (127.0.0.1:") {
				t.Errorf("stderr: %s", errs)
			}
		})
	}
}

// In modes in which no worker waits for another, the others must take all
// their steps after one is lost, and exit with 0. The chief must have reported
// to its agent that the job tolerates the loss.
func TestOthersContinueWithoutLostProcess(t *testing.T) {
	if testing.Short() {
		t.Skip("takes seconds")
	}
	testLostProcess(t, map[string][]syscall.Signal{"async": {syscall.SIGKILL}, "ssp:2": {syscall.SIGSTOP}, "backup:1": {syscall.SIGKILL, syscall.SIGTERM}})
}

func testLostProcess(t *testing.T, losses map[string][]syscall.Signal) {
	bears := cluster.ControlMessage{Kind: cluster.ToleratesLoss}
	for sync, signals := range losses {
		for _, signal := range signals {
			t.Run(sync+" "+signal.String(), func(t *testing.T) {
				t.Parallel()
				all := launch(t, "300 4s", 3, 2, "--sync="+sync)
				all["worker:0"].untilStep(t, 5)
				if err := all["worker:1"].cmd.Process.Signal(signal); err != nil {
					t.Fatal(err)
				}
				code, said := all["worker:0"].end(t)
				if code != 0 || len(said) != 3 || !reflect.DeepEqual(said[1], bears) || said[2].Kind != cluster.Finished {
					t.Errorf("worker:0: exit code %d, said %+v; stderr: %s", code, said, all["worker:0"].stderr.String())
				}
				if code, said := all["worker:2"].end(t); code != 0 || len(said) != 2 {
					t.Errorf("worker:2: exit code %d, said %+v; stderr: %s", code, said, all["worker:2"].stderr.String())
				}
				for _, name := range []string{"ps:0", "ps:1"} {
					code, _ := all[name].end(t)
					if text := all[name].stderr.String(); code != 0 || !strings.Contains(text, "worker:1 (127.0.0.1:") || !strings.Contains(text, "; the training goes on without it") {
						t.Errorf("%s: exit code %d; stderr: %s", name, code, text)
					}
				}
			})
		}
	}
}

func TestProgramWithoutLauncher(t *testing.T) {
	for program, want := range map[string]int{"3": 0, "fail": exitFailed} {
		cmd := exec.Command(os.Args[0])
		cmd.Env = append(os.Environ(), "TRAINER_TEST="+program, "PLX_BLAS=gonum", "PLX_LOG_LEVEL=verbose")
		out, _ := cmd.CombinedOutput() // an error is ignored, because the test checks the exit code
		if got := cmd.ProcessState.ExitCode(); got != want {
			t.Errorf("%s: exit code %d, want %d: %s", program, got, want, out)
		}
		for _, line := range map[string][]string{
			"3":    {"plx: verbose: 1 worker, allreduce (alone), sync, batch 12 (12 rows each), ", "in this process", "gonum", "step 2 loss"},
			"fail": {"plx: worker:0: no such file"},
		}[program] {
			if !strings.Contains(string(out), line) {
				t.Errorf("%s: no %q in %s", program, line, out)
			}
		}
	}
}

// After SIGTERM, a program without a launcher must save a checkpoint, from
// which the next run resumes. Without --ckpt-dir, and after SIGINT, it must
// exit at once.
func TestSIGTERMSavesAProgramThatRunsAlone(t *testing.T) {
	dir := t.TempDir()
	run := func(program string, sent os.Signal, flags ...string) (code int, log string) {
		cmd := exec.Command(os.Args[0], flags...)
		cmd.Env = append(os.Environ(), "TRAINER_TEST="+program, "PLX_BLAS=gonum")
		p := &testProcess{task: cluster.Chief, cmd: cmd, waited: make(chan struct{}), out: &watched{more: make(chan struct{}, 1)}}
		cmd.Stdout, cmd.Stderr = p.out, &p.stderr
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		go func() { cmd.Wait(); close(p.waited) }()
		t.Cleanup(func() {
			cmd.Process.Kill() // it may have ended
			<-p.waited
		})
		if sent != nil {
			p.untilStep(t, 3)
			if err := cmd.Process.Signal(sent); err != nil {
				t.Fatal(err)
			}
		}
		code, _ = p.end(t)
		return code, p.stderr.String()
	}
	if code, log := run("forever", syscall.SIGTERM); code != exitStopped || strings.Contains(log, "saved") {
		t.Errorf("without a folder: exit code %d: %s", code, log)
	}
	if code, log := run("forever", os.Interrupt, "--ckpt-dir", dir); code != 130 || strings.Contains(log, "saved") {
		t.Errorf("SIGINT: exit code %d: %s", code, log)
	}
	code, log := run("forever", syscall.SIGTERM, "--ckpt-dir", dir)
	_, saved, _ := strings.Cut(log, "plx: saved at step ")
	saved, _, _ = strings.Cut(saved, "\n")
	if code != exitStopped || saved == "" {
		t.Fatalf("exit code %d: %s", code, log)
	}
	if code, log := run("1", nil, "--ckpt-dir", dir); code != 0 || !strings.Contains(log, "going on after step "+saved+",") {
		t.Errorf("after the checkpoint of step %s: exit code %d: %s", saved, code, log)
	}
}

// A program that never calls Parallelize must log which of its flags have had
// no effect.
func TestFlagsWithoutEffectAreNamed(t *testing.T) {
	for want, c := range map[string]Config{
		"which they are for: --digest\n": {Digest: true},
		"which they are for: --ckpt-dir, --summary-dir, --export-graph, --profile-steps, --stop-at-step\n": {
			CheckpointDir: t.TempDir(), SummaryDir: "s", ExportGraph: "g", ProfileSteps: "1", StopAtStep: 3},
		"": {},
	} {
		var log bytes.Buffer
		p := process{getenv: func(string) string { return "" }, log: &log, config: config.Default().With(c)}
		code := p.run(t.Context(), func(error) {}, func(context.Context, *Job) error { return nil })
		if code != 0 || want != "" && strings.Count(log.String(), want) != 1 || want == "" && strings.Contains(log.String(), "effect") {
			t.Errorf("%q: exit code %d: %s", want, code, &log)
		}
	}
}

func TestBadContractIsAnError(t *testing.T) {
	var log bytes.Buffer
	env := map[string]string{"PLX_ROLE": "worker", "PLX_TASK_INDEX": "x"}
	p := process{getenv: func(name string) string { return env[name] }, log: &log, config: config.Default()}
	code := p.run(context.Background(), func(error) {}, func(context.Context, *Job) error { return nil })
	if code != exitFailed || !strings.Contains(log.String(), "PLX_TASK_INDEX") {
		t.Errorf("exit code %d: %s", code, log.String())
	}
}

// On request, a task must send the stacks of its goroutines to the agent in
// several messages, and continue to train.
func TestTaskSendsItsStacks(t *testing.T) {
	worker := launch(t, "forever", 1, 0)["worker:0"]
	worker.untilStep(t, 2)
	if err := worker.control.Send(cluster.ControlMessage{Kind: cluster.Stacks, Request: 7}); err != nil {
		t.Fatal(err)
	}
	worker.untilStep(t, 200)
	if err := worker.control.Send(cluster.ControlMessage{Kind: cluster.Stop}); err != nil {
		t.Fatal(err)
	}
	_, said := worker.end(t)
	var text strings.Builder
	complete := false
	for _, m := range said {
		if m.Kind == cluster.Stacks && m.Request == 7 && !complete {
			text.WriteString(m.Text)
			complete = !m.More
		}
	}
	if !complete || !strings.HasPrefix(text.String(), "goroutine ") || !strings.Contains(text.String(), "(*task).serveAgent(") || !strings.Contains(text.String(), "main_test.go:") {
		t.Errorf("stacks, complete %t:\n%s", complete, text.String())
	}
}
