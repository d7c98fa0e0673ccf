package ssh_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	gossh "golang.org/x/crypto/ssh"

	"github.com/plx-run/plx/internal/test/patience"
	"github.com/plx-run/plx/launcher/embedded"
	"github.com/plx-run/plx/launcher/ssh"
	"github.com/plx-run/plx/launcher/transport"
)

// noticed is the maximum time to detect a silent server with DeadAfter of four
// seconds. It is less than with the default DeadAfter.
const noticed = 19 * time.Second

// onBothServers runs test with an OpenSSH server and with plx's own server,
// each behind a proxy, and with DeadAfter of four seconds.
func onBothServers(t *testing.T, test func(t *testing.T, p *proxy, cfg ssh.Config)) {
	quick := func(cfg ssh.Config, p *proxy) ssh.Config {
		cfg.Host, cfg.Port = "127.0.0.1", p.port()
		cfg.KeepaliveEvery, cfg.DeadAfter = 500*time.Millisecond, 4*time.Second
		return cfg
	}
	t.Run("OpenSSH", func(t *testing.T) {
		server := startSSHD(t)
		p := startProxy(t, net.JoinHostPort("127.0.0.1", strconv.Itoa(server.port)))
		home := newHome(t)
		writeFile(t, knownHosts(home), p.knownAs()+" "+string(gossh.MarshalAuthorizedKey(server.hostKey)), 0o600)
		test(t, p, quick(ssh.Config{Home: home}, p))
	})
	t.Run("embedded", func(t *testing.T) {
		cluster, err := embedded.Start(t.Context(), 1)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = cluster.Close() }) // always nil
		cfg := cluster.Configs()[0]
		p := startProxy(t, net.JoinHostPort(cfg.Host, strconv.Itoa(cfg.Port)))
		test(t, p, quick(cfg, p))
	})
}

// heldWriter is a writer whose first Write blocks until release is called.
type heldWriter struct {
	begun, release chan struct{}
	writes         atomic.Int32
}

func (w *heldWriter) Write(p []byte) (int, error) {
	if w.writes.Add(1) == 1 {
		close(w.begun)
		<-w.release
	}
	return len(p), nil
}

type writerFunc func()

func (f writerFunc) Write(p []byte) (int, error) {
	f()
	return len(p), nil
}

// Run returns even if a caller's writer blocks. Output that arrives later is
// not written.
func TestRunWritesNothingAfterReturn(t *testing.T) {
	cluster, err := embedded.Start(t.Context(), 1)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = cluster.Close() }) // always nil
	for stream, command := range map[string]string{
		"stdout": "head -c 200000 /dev/zero; echo done >&2; exec cat",
		"stderr": "head -c 200000 /dev/zero >&2; echo done; exec cat",
	} {
		t.Run(stream, func(t *testing.T) {
			client := dial(t, cluster.Configs()[0])
			ctx, cancel := context.WithCancel(t.Context())
			held := &heldWriter{begun: make(chan struct{}), release: make(chan struct{})}
			var stdout, stderr io.Writer = held, writerFunc(func() {
				<-held.begun
				cancel() // at least 100 kB of output now wait for the blocked writer
			})
			if stream == "stderr" {
				stdout, stderr = stderr, stdout
			}
			stdin, writer := io.Pipe()
			defer writer.Close()
			if err := client.Run(ctx, command, stdin, stdout, stderr); !errors.Is(err, context.Canceled) {
				t.Errorf("run: %v", err)
			}
			close(held.release)
			_ = client.Close() // waits for the goroutines that could still write
			if n := held.writes.Load(); n != 1 {
				t.Errorf("%d writes, of which %d began after Run had returned", n, n-1)
			}
		})
	}
}

// waiting starts a command that ends when its stdin ends, and returns after it
// has started. The channel receives the result of Run.
func waiting(t *testing.T, client *ssh.Client) <-chan error {
	t.Helper()
	reader, writer := io.Pipe()
	t.Cleanup(func() { _ = writer.Close() }) // never fails
	ended := make(chan error, 1)
	started := &once{reached: make(chan struct{})}
	go func() {
		ended <- client.Run(context.Background(), "echo started; cat", reader, started, nil)
	}()
	receive(t, started.reached, patience.Limit, "the start")
	return ended
}

// once is a writer that signals its first Write.
type once struct {
	reached chan struct{}
	written bool
}

func (o *once) Write(p []byte) (int, error) {
	if !o.written {
		o.written = true
		close(o.reached)
	}
	return len(p), nil
}

func receive[T any](t *testing.T, c <-chan T, bound time.Duration, what string) (value T) {
	t.Helper()
	select {
	case value = <-c:
	case <-time.After(bound):
		t.Fatalf("%s took more than %v", what, bound)
	}
	return value
}

func checkLost(t *testing.T, err error) {
	t.Helper()
	var lost *transport.LostError
	if !errors.As(err, &lost) || lost.Host == "" {
		t.Errorf("%v, want a LostError", err)
	}
}

func TestConnectionCutDuringRun(t *testing.T) {
	onBothServers(t, func(t *testing.T, p *proxy, cfg ssh.Config) {
		cfg.DeadAfter = 2 * patience.Limit // long enough that only the cut connection ends Run
		client := dial(t, cfg)
		ended := waiting(t, client)
		p.cut()
		checkLost(t, receive(t, ended, patience.Limit, "the return after the cut"))
		checkLost(t, client.Run(t.Context(), "true", nil, nil, nil))
		checkLost(t, client.Copy(t.Context(), strings.NewReader(""), filepath.Join(t.TempDir(), "f")))
		again := dial(t, cfg)
		if got := output(t, again, "echo back"); got != "back\n" {
			t.Errorf("after dialling again: %q", got)
		}
	})
}

func TestSilentNetworkDuringRun(t *testing.T) {
	if testing.Short() {
		t.Skip("waits for a deadline")
	}
	t.Parallel()
	onBothServers(t, func(t *testing.T, p *proxy, cfg ssh.Config) {
		client := dial(t, cfg)
		ended := waiting(t, client)
		p.freeze()
		err := receive(t, ended, noticed, "the notice of a silent network")
		if checkLost(t, err); !strings.Contains(err.Error(), "no byte arrived from the host for 4s") {
			t.Errorf("%v does not say how long the network was silent", err)
		}
		start := time.Now()
		if err := client.Close(); err != nil || time.Since(start) > patience.Limit {
			t.Errorf("close: %v after %v", err, time.Since(start))
		}
	})
}

func TestConnectionCutDuringCopy(t *testing.T) {
	onBothServers(t, func(t *testing.T, p *proxy, cfg ssh.Config) {
		cfg.DeadAfter = 2 * patience.Limit // long enough that only the cut connection ends Copy
		for range 5 {
			client := dial(t, cfg)
			// Cut only once: a Read that Copy left behind must not cut the
			// next connection.
			source := &acting{act: sync.OnceFunc(p.cut), after: 1 << 20}
			checkLost(t, client.Copy(t.Context(), source, filepath.Join(t.TempDir(), "f")))
		}
	})
}

// The network falls silent when the kernel's send buffers are full, so that a
// write blocks.
func TestSilentNetworkDuringCopy(t *testing.T) {
	if testing.Short() {
		t.Skip("waits for a deadline")
	}
	t.Parallel()
	onBothServers(t, func(t *testing.T, p *proxy, cfg ssh.Config) {
		client := dial(t, cfg)
		source := &acting{act: p.freeze, after: 1 << 20}
		ended := make(chan error, 1)
		go func() {
			ended <- client.Copy(context.Background(), source, filepath.Join(t.TempDir(), "f"))
		}()
		checkLost(t, receive(t, ended, noticed, "the notice of a silent network"))
	})
}

// acting is an endless reader that calls act in each Read beyond the first after
// bytes.
type acting struct {
	act   func()
	after int
}

func (a *acting) Read(b []byte) (int, error) {
	if a.after -= len(b); a.after < 0 {
		a.act()
	}
	return len(b), nil
}

func TestSilentServerBeforeHandshake(t *testing.T) {
	onBothServers(t, func(t *testing.T, p *proxy, cfg ssh.Config) {
		p.freeze()
		for _, bounds := range [][2]time.Duration{{300 * time.Millisecond, 0}, {time.Hour, 300 * time.Millisecond}, {300 * time.Millisecond, time.Hour}} {
			cfg.DialTimeout, cfg.DialAtMost = bounds[0], bounds[1]
			start := time.Now()
			_, err := ssh.Dial(t.Context(), cfg)
			if err == nil || time.Since(start) > patience.Limit || !strings.Contains(err.Error(), "within 300ms") {
				t.Errorf("%v: dial: %v after %v", bounds, err, time.Since(start))
			}
		}
	})
}

// A pause in the network that is shorter than DeadAfter does not break the
// connection.
func TestShortPauseIsTolerated(t *testing.T) {
	onBothServers(t, func(t *testing.T, p *proxy, cfg ssh.Config) {
		cfg.DeadAfter = patience.Limit
		client := dial(t, cfg)
		p.freeze()
		ended := make(chan string, 1)
		go func() {
			var stdout bytes.Buffer
			err := client.Run(context.Background(), "echo late", nil, &stdout, nil)
			ended <- fmt.Sprint(stdout.String(), err)
		}()
		for end := time.Now().Add(patience.Limit); p.held.Load() == 0; time.Sleep(time.Millisecond) {
			if time.Now().After(end) {
				t.Fatal("the command was never sent")
			}
		}
		p.unfreeze()
		if got := receive(t, ended, patience.Limit, "the command"); got != "late\n<nil>" {
			t.Errorf("got %q", got)
		}
	})
}

func TestFrozenServerIsDetected(t *testing.T) {
	t.Parallel()
	server := startSSHD(t)
	cfg := server.config(newHome(t, server))
	cfg.KeepaliveEvery, cfg.DeadAfter = 500*time.Millisecond, 4*time.Second
	client := dial(t, cfg)
	ended := waiting(t, client)
	stopped := childrenOf(t, server.pid)
	for _, pid := range stopped {
		if err := syscall.Kill(pid, syscall.SIGSTOP); err != nil {
			t.Fatal(err)
		}
	}
	t.Cleanup(func() {
		for _, pid := range stopped {
			_ = syscall.Kill(pid, syscall.SIGCONT) // it may have ended
		}
	})
	checkLost(t, receive(t, ended, noticed, "the notice of a frozen server"))
}

func childrenOf(t *testing.T, pid int) []int {
	t.Helper()
	data, err := os.ReadFile(fmt.Sprintf("/proc/%d/task/%d/children", pid, pid))
	if err != nil {
		t.Fatal(err)
	}
	var pids []int
	for _, field := range strings.Fields(string(data)) {
		child, err := strconv.Atoi(field)
		if err != nil {
			t.Fatal(err)
		}
		pids = append(pids, child)
	}
	if len(pids) == 0 {
		t.Fatal("sshd has no child for the connection")
	}
	return pids
}

// With the default settings a dead host is detected within 30 s.
func TestDefaultDeadlines(t *testing.T) {
	cfg := ssh.Config{Host: "h", Home: "/nonexistent"}
	if err := ssh.Validate(&cfg); err != nil {
		t.Fatal(err)
	}
	if worst := cfg.DeadAfter + cfg.KeepaliveEvery; worst > 30*time.Second {
		t.Errorf("a dead host is noticed after up to %v", worst)
	}
}

// After Close no goroutine of the client is left.
func TestCloseLeaksNothing(t *testing.T) {
	server := startSSHD(t)
	cfg := server.config(newHome(t, server))
	before := runtime.NumGoroutine()
	client := dial(t, cfg)
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	_ = client.Run(ctx, "sleep 1", nil, nil, nil) // it is cut short
	output(t, client, "echo x")
	if err := client.Copy(t.Context(), strings.NewReader("x"), filepath.Join(t.TempDir(), "f")); err != nil {
		t.Error(err)
	}
	if err := client.Close(); err != nil {
		t.Error(err)
	}
	for end := time.Now().Add(patience.Limit); runtime.NumGoroutine() > before; time.Sleep(10 * time.Millisecond) {
		if time.Now().After(end) {
			stacks := make([]byte, 1<<20)
			t.Fatalf("%d goroutines, %d before:\n%s", runtime.NumGoroutine(), before, stacks[:runtime.Stack(stacks, true)])
		}
	}
}
