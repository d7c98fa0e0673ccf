//go:build linux

package gpulock

import (
	"bufio"
	"crypto/rand"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/plx-run/plx/internal/test/patience"
	"github.com/plx-run/plx/launcher/protocol"
)

// TestMain also lets the test binary run as another process that takes a lock,
// see newOther.
func TestMain(m *testing.M) {
	if device := os.Getenv("PLX_TEST_DEVICE"); device != "" {
		takeForTest(device)
		return
	}
	os.Exit(m.Run())
}

// attempts is how often a process tries to take a lock.
const attempts = 10

// takeForTest runs in the other process. It reads a line, tries to take a
// lock, and prints the result. It keeps the lock until it is killed.
func takeForTest(device string) {
	in := bufio.NewScanner(os.Stdin)
	in.Scan()
	var locks []*os.File
	var err error
	for range attempts {
		if locks, err = Take([]protocol.Claim{{Device: device}}, "1"); err == nil {
			break
		}
	}
	if err == nil {
		err = ServeHolder(locks, "job-"+strconv.Itoa(os.Getpid()))
	}
	if err != nil {
		fmt.Println(err)
	} else {
		fmt.Println("held")
	}
	in.Scan()
}

// newDevice returns the name of a device that no other test uses.
func newDevice() string { return "GPU-test-" + rand.Text() }

// other is another process that tries to take the lock of a device.
type other struct {
	t   *testing.T
	cmd *exec.Cmd
	in  *os.File
	out *bufio.Scanner
}

func newOther(t *testing.T, device string) *other {
	t.Helper()
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	return startOther(t, device, exec.Command(exe))
}

// newOtherAs starts the other process as the user uid, who may not be able to
// read the folder of the test binary.
func newOtherAs(t *testing.T, device string, uid uint32) *other {
	t.Helper()
	dir, err := os.MkdirTemp("", "gpulock-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	program := filepath.Join(dir, "other")
	text, err := os.ReadFile("/proc/self/exe")
	if err == nil {
		err = errors.Join(os.Chmod(dir, 0o755), os.WriteFile(program, text, 0o755))
	}
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(program)
	cmd.Dir = "/"
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uid, Gid: uid}}
	return startOther(t, device, cmd)
}

func startOther(t *testing.T, device string, cmd *exec.Cmd) *other {
	t.Helper()
	cmd.Env = append(os.Environ(), "PLX_TEST_DEVICE="+device, "GORACE=atexit_sleep_ms=0")
	cmd.Stderr = os.Stderr
	read, write, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	cmd.Stdin = read
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	read.Close()
	o := &other{t: t, cmd: cmd, in: write, out: bufio.NewScanner(out)}
	t.Cleanup(func() { o.in.Close(); o.cmd.Process.Kill(); o.cmd.Wait() })
	return o
}

// next makes the process try to take the lock, and returns the line that it
// prints.
func (o *other) next() string {
	if _, err := o.in.WriteString("\n"); err != nil {
		return err.Error()
	}
	o.out.Scan()
	return o.out.Text()
}

func (o *other) end(sig os.Signal) {
	o.t.Helper()
	if err := o.cmd.Process.Signal(sig); err != nil {
		o.t.Fatal(err)
	}
	o.cmd.Wait() // the error only says that a signal has killed the process
}

// takeHere takes locks in this process and releases them at the end of the
// test.
func takeHere(t *testing.T, claims ...protocol.Claim) ([]*os.File, error) {
	t.Helper()
	locks, err := Take(claims, "1")
	t.Cleanup(func() { Release(locks) })
	return locks, err
}

// The error of a taken lock names its holder. The lock is free as soon as the
// holder has been killed.
func TestLockNamesHolderAndEndsWithHolder(t *testing.T) {
	device := newDevice()
	holder := newOther(t, device)
	if got := holder.next(); got != "held" {
		t.Fatal(got)
	}
	_, err := takeHere(t, protocol.Claim{Device: device})
	var held *Held
	if !errors.As(err, &held) {
		t.Fatalf("got %v, want a Held", err)
	}
	me, userErr := user.Current()
	if userErr != nil {
		t.Fatal(userErr)
	}
	if held.Device != device || held.Holder.User != me.Username || held.Holder.Job != "job-"+strconv.Itoa(holder.cmd.Process.Pid) {
		t.Errorf("got %v", held)
	}
	holder.end(unix.SIGKILL)
	if _, err := takeHere(t, protocol.Claim{Device: device}); err != nil {
		t.Errorf("after the holder was killed: %v", err)
	}
}

// Other users and other versions of plx detect a taken lock and cannot take
// it.
func TestLockExcludesOtherUsers(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("needs root: it runs a process of another user")
	}
	nobody, err := user.Lookup("nobody")
	if err != nil {
		t.Skip("needs a user nobody")
	}
	uid, err := strconv.ParseUint(nobody.Uid, 10, 32)
	if err != nil {
		t.Fatal(err)
	}
	device := newDevice()
	holder := newOtherAs(t, device, uint32(uid))
	if got := holder.next(); got != "held" {
		t.Fatal(got)
	}
	for _, shared := range []bool{false, true} {
		_, err = takeHere(t, protocol.Claim{Device: device, Shared: shared})
		if held := (*Held)(nil); !errors.As(err, &held) || held.Holder.User != "nobody" || held.Holder.Job == "" {
			t.Errorf("root's attempt, shared %v: %v", shared, err)
		}
	}
	holder.end(unix.SIGKILL)
	locks, err := takeHere(t, protocol.Claim{Device: device})
	if err == nil {
		err = ServeHolder(locks, "mine")
	}
	if err != nil {
		t.Fatalf("after the other user's process was killed: %v", err)
	}
	if got := newOtherAs(t, device, uint32(uid)).next(); !strings.Contains(got, "is reserved by job mine of user root") {
		t.Errorf("the other user's attempt beside root's lock: %s", got)
	}
}

// The socket names of locks and tickets must not change, because other
// versions of plx look for them.
func TestSocketNamesStayTheSame(t *testing.T) {
	own, shared, whole := newDevice(), newDevice(), newDevice()
	if _, err := takeHere(t, protocol.Claim{Device: own}, protocol.Claim{Device: shared, Shared: true}, protocol.Claim{Device: "MIG-" + own, Whole: whole}); err != nil {
		t.Fatal(err)
	}
	q, err := Enter([]protocol.Claim{{Device: own}}, "0c-x")
	if err != nil {
		t.Fatal(err)
	}
	defer q.Leave()
	list, err := os.ReadFile("/proc/net/unix")
	if err != nil {
		t.Fatal(err)
	}
	for name, flags := range map[string]string{own: "00010000", shared + "/shared/0": "00010000", "MIG-" + own: "00010000", whole + "/shared/0": "00010000", own + "/wait/0c-x": "00000000"} {
		line := regexp.MustCompile(`(?m)^\S+ \S+ \S+ ` + flags + ` .* @plx-gpu-` + name + `$`)
		if len(line.FindAll(list, -1)) != 1 {
			t.Errorf("/proc/net/unix has no line %s", line)
		}
	}
}

// If the process that holds a lock is stopped, the error still names its user.
func TestStoppedHolderIsReportedByUser(t *testing.T) {
	device := newDevice()
	holder := newOther(t, device)
	if got := holder.next(); got != "held" {
		t.Fatal(got)
	}
	if err := holder.cmd.Process.Signal(unix.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	var status unix.WaitStatus
	if _, err := unix.Wait4(holder.cmd.Process.Pid, &status, unix.WUNTRACED, nil); err != nil || !status.Stopped() {
		t.Fatalf("stop the holder: %v, %v", status, err)
	}
	// If Take hangs, killing the holder at least ends it.
	late := time.AfterFunc(patience.Limit, func() { holder.cmd.Process.Kill() })
	_, err := takeHere(t, protocol.Claim{Device: device})
	if !late.Stop() {
		t.Error("who asks waits until the holder ends")
	}
	var held *Held
	if !errors.As(err, &held) || held.Holder.Job != "" || !strings.Contains(err.Error(), "is reserved by user "+held.Holder.User) {
		t.Errorf("got %v", err)
	}
}

// A lock lasts as long as any process that has inherited it.
func TestInheritedLockOutlivesParent(t *testing.T) {
	device := newDevice()
	locks, err := Take([]protocol.Claim{{Device: device}}, "1")
	if err != nil {
		t.Fatal(err)
	}
	child := exec.Command("sleep", "1000")
	child.ExtraFiles = locks
	if err := child.Start(); err != nil {
		t.Fatal(err)
	}
	Release(locks)
	_, err = takeHere(t, protocol.Claim{Device: device})
	if held := (*Held)(nil); !errors.As(err, &held) {
		t.Errorf("while a child has the lock: %v", err)
	}
	if err := child.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	child.Wait() // killed
	if _, err := takeHere(t, protocol.Claim{Device: device}); err != nil {
		t.Errorf("after the child was killed: %v", err)
	}
}

// A child process that the holder starts for another purpose does not inherit
// the lock.
func TestLocksAreClosedOnExec(t *testing.T) {
	claims := []protocol.Claim{{Device: newDevice()}, {Device: newDevice(), Shared: true}}
	locks, err := takeHere(t, claims...)
	if err != nil {
		t.Fatal(err)
	}
	child := exec.Command("sleep", "1000")
	if err := child.Start(); err != nil {
		t.Fatal(err)
	}
	defer child.Wait() // killed
	defer child.Process.Kill()
	Release(locks)
	for _, c := range claims {
		if _, err := takeHere(t, protocol.Claim{Device: c.Device}); err != nil {
			t.Errorf("while a child lives that was given no lock: %v", err)
		}
	}
}

// Take retries if it finds a lock that another process is just taking or
// releasing.
func TestTakeRetriesWhileLockIsChanging(t *testing.T) {
	device := newDevice()
	fd, err := bind(prefix + device) // the socket does not listen yet
	if err != nil {
		t.Fatal(err)
	}
	time.AfterFunc(retryPause, func() { unix.Close(fd) })
	if _, err := takeHere(t, protocol.Claim{Device: device}); err != nil {
		t.Error(err)
	}
}

// A job that claims several devices gets all of them or none.
func TestTakeGetsAllLocksOrNone(t *testing.T) {
	a, b := "GPU-a-"+rand.Text(), "GPU-b-"+rand.Text()
	if _, err := takeHere(t, protocol.Claim{Device: b}); err != nil {
		t.Fatal(err)
	}
	_, err := takeHere(t, protocol.Claim{Device: b}, protocol.Claim{Device: a})
	if held := (*Held)(nil); !errors.As(err, &held) || held.Device != b {
		t.Errorf("got %v, want that %s is held", err, b)
	}
	if _, err := takeHere(t, protocol.Claim{Device: a}); err != nil {
		t.Errorf("the other device: %v", err)
	}
	for _, name := range []string{"", "../x", "GPU-" + strings.Repeat("x", 64), "GPU 1"} {
		if _, err := takeHere(t, protocol.Claim{Device: name}); err == nil || !strings.Contains(err.Error(), "no UUID") {
			t.Errorf("device %q: %v", name, err)
		}
	}
}

// Up to maxShared jobs can hold a shared lock of a device. While one does, no
// job gets an exclusive lock.
func TestSharedLocksExcludeExclusiveLock(t *testing.T) {
	device := newDevice()
	var all [][]*os.File
	for range maxShared {
		locks, err := takeHere(t, protocol.Claim{Device: device, Shared: true})
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, locks)
	}
	if _, err := takeHere(t, protocol.Claim{Device: device, Shared: true}); err == nil || !strings.Contains(err.Error(), "already shared by 16 jobs") {
		t.Errorf("one more: %v", err)
	}
	var held *Held
	for i, locks := range all {
		if i == 0 || i == maxShared-1 { // test only the first and the last, because each refused attempt takes a while
			if _, err := takeHere(t, protocol.Claim{Device: device}); !errors.As(err, &held) {
				t.Errorf("an exclusive lock beside %d shared ones: %v", maxShared-i, err)
			}
		}
		Release(locks)
	}
	if _, err := takeHere(t, protocol.Claim{Device: device}); err != nil {
		t.Errorf("after the shared ones: %v", err)
	}
	if _, err := takeHere(t, protocol.Claim{Device: device, Shared: true}); !errors.As(err, &held) {
		t.Errorf("a shared lock beside an exclusive one: %v", err)
	}
}

// If one task of a job shares a device and another task does not, the job gets
// an exclusive lock.
func TestClaimIsExclusiveUnlessAllTasksShare(t *testing.T) {
	device := newDevice()
	locks, err := takeHere(t, protocol.Claim{Device: device, Shared: true}, protocol.Claim{Device: device})
	if err == nil {
		err = ServeHolder(locks, "mine")
	}
	if err != nil || len(locks) != 1 {
		t.Fatalf("%d locks, %v", len(locks), err)
	}
	_, err = takeHere(t, protocol.Claim{Device: device, Shared: true})
	if held := (*Held)(nil); !errors.As(err, &held) {
		t.Errorf("another job's shared lock: %v", err)
	} else if held.Holder.Job != "mine" {
		t.Errorf("the holder's words: %q", held.Holder.Job)
	}
}

// Different jobs can hold MIG devices of one GPU. While one does, no job gets
// the whole GPU.
func TestMIGDevicesExcludeWholeGPU(t *testing.T) {
	t.Parallel() // slow: the locks' holder sends no replies here, so each refused attempt waits for the timeout
	whole := newDevice()
	a := protocol.Claim{Device: "MIG-" + rand.Text(), Name: "gpu 0:0", Whole: whole}
	b := protocol.Claim{Device: "MIG-GPU-" + rand.Text() + "/7/0", Name: "gpu 0:1", Whole: whole}
	must := func(claim protocol.Claim, locks int) []*os.File {
		t.Helper()
		all, err := takeHere(t, claim)
		if err != nil || len(all) != locks {
			t.Fatalf("%d locks, %v", len(all), err)
		}
		return all
	}
	first, second := must(a, 2), must(b, 2)
	refused := func(claim protocol.Claim, device, says string) {
		t.Helper()
		_, err := takeHere(t, claim)
		if held := (*Held)(nil); !errors.As(err, &held) || held.Device != device || !strings.Contains(err.Error(), says) {
			t.Errorf("%v: %v", claim, err)
		}
	}
	refused(a, a.Device, "gpu 0:0: MIG device MIG-")
	refused(protocol.Claim{Device: whole}, whole, "GPU GPU-")
	Release(first)
	refused(protocol.Claim{Device: whole}, whole, "is reserved by user")
	Release(second)
	all := must(protocol.Claim{Device: whole}, 1)
	refused(b, whole, "gpu 0:1: GPU GPU-")
	Release(all)
	if locks, err := takeHere(t, a, b); err != nil || len(locks) != 3 {
		t.Errorf("two devices of one job: %d locks, %v", len(locks), err)
	}
}

// A launch that waits for a MIG device does not delay launches that want
// another MIG device of the same GPU.
func TestQueueIsPerMIGDevice(t *testing.T) {
	whole := newDevice()
	a := protocol.Claim{Device: "MIG-" + rand.Text(), Whole: whole}
	b := protocol.Claim{Device: "MIG-" + rand.Text(), Whole: whole}
	waits, err := Enter([]protocol.Claim{a}, "1")
	if err != nil {
		t.Fatal(err)
	}
	defer waits.Leave()
	locks, err := Take([]protocol.Claim{b}, "2")
	if err != nil {
		t.Error(err)
	}
	Release(locks)
	_, err = Take([]protocol.Claim{a}, "2")
	if early := (*Waiting)(nil); !errors.As(err, &early) {
		t.Errorf("the device that is waited for: %v", err)
	}
}

// Many processes make a thousand attempts to take a lock at the same time. In
// each round exactly one succeeds. After its holder is killed, one succeeds
// again.
func TestOnlyOneOfManyProcessesGetsLock(t *testing.T) {
	const processes, rounds = 20, 5
	device := newDevice()
	for round := range rounds {
		answers := make([]string, processes)
		var others []*other
		for range processes {
			others = append(others, newOther(t, device))
		}
		var racing sync.WaitGroup
		for i, o := range others {
			racing.Go(func() { answers[i] = o.next() })
		}
		racing.Wait()
		won := 0
		for _, a := range answers {
			if a == "held" {
				won++
			} else if !strings.Contains(a, "is reserved by") {
				t.Errorf("round %d: %s", round, a)
			}
		}
		if won != 1 {
			t.Fatalf("round %d: %d holders, want 1", round, won)
		}
		for _, o := range others {
			o.end(unix.SIGKILL)
		}
		locks, err := Take([]protocol.Claim{{Device: device}}, "1")
		if err != nil {
			t.Fatalf("round %d: after all were killed: %v", round, err)
		}
		Release(locks)
	}
}

// Processes race for shared and exclusive locks, and the holders are killed in
// between. A shared and an exclusive lock are never held at the same time.
func TestSharedAndExclusiveLocksAreNeverHeldTogether(t *testing.T) {
	device := newDevice()
	var racing sync.WaitGroup
	var mu sync.Mutex
	exclusive, shared, had := 0, 0, map[bool]int{}
	end := time.Now().Add(patience.Limit)
	for i := range 8 {
		racing.Go(func() {
			for range 50 {
				mine := protocol.Claim{Device: device, Shared: i%2 == 0}
				locks, err := Take([]protocol.Claim{mine}, "1")
				if time.Now().After(end) {
					t.Errorf("it does not end: the last attempt got %v", err)
					return
				}
				if err != nil {
					continue
				}
				count := func(n int) {
					mu.Lock()
					defer mu.Unlock()
					if mine.Shared {
						shared += n
					} else {
						exclusive += n
					}
					if exclusive > 1 || exclusive == 1 && shared > 0 {
						t.Errorf("%d exclusive and %d shared locks at once", exclusive, shared)
					}
					had[mine.Shared]++
				}
				count(1)
				time.Sleep(time.Millisecond / 10) // hold the lock for a moment
				count(-1)
				Release(locks)
			}
		})
	}
	racing.Wait()
	if had[true] == 0 || had[false] == 0 {
		t.Errorf("locks that were had: %v", had)
	}
}

// Launches queue in the order of their tickets, and a later launch cannot
// overtake. The queue is empty after its processes have ended.
func TestQueueOrdersLaunchesByTicket(t *testing.T) {
	device, other := "GPU-a-"+rand.Text(), "GPU-b-"+rand.Text()
	claims := []protocol.Claim{{Device: device}, {Device: other}}
	enter := func(ticket string, claims ...protocol.Claim) *Queue {
		t.Helper()
		q, err := Enter(claims, ticket)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(q.Leave)
		return q
	}
	places := func(q *Queue, want ...string) {
		t.Helper()
		if got, err := q.Ahead(); err != nil || !slices.Equal(got, want) {
			t.Errorf("ahead of %s: %v, %v, want %v", q.ticket, got, err, want)
		}
	}
	second := enter("2", claims...)
	third := enter("3", claims[1])
	first := enter("1", claims[1], claims[0])
	places(first)
	places(second, "1")
	places(third, "1", "2")
	if _, err := Enter(claims, "2"); err == nil {
		t.Error("a ticket was drawn twice")
	}
	for _, refused := range [][]protocol.Claim{claims, {claims[0], {Device: "no UUID"}}} {
		if _, err := Enter(refused, "3"); err == nil {
			t.Errorf("entered for %v with a ticket that is drawn for one, or with no device", refused)
		}
	}
	places(enter("4", claims[0]), "1", "2") // the failed calls of Enter have left no ticket
	for ticket, want := range map[string]int{"0": 0, "1": 0, "2": 1, "5": 4} {
		locks, err := Take(claims, ticket)
		Release(locks)
		var waiting *Waiting
		if errors.As(err, &waiting) != (want > 0) || waiting != nil && waiting.Launches != want {
			t.Errorf("ticket %s: %v, want %d launches ahead", ticket, err, want)
		}
	}
	first.Leave()
	places(second)
	places(third, "2")
	if _, err := Enter(claims, "../x"); err == nil || !strings.Contains(err.Error(), "bad ticket") {
		t.Errorf("a bad ticket: %v", err)
	}
}
