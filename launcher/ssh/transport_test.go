package ssh_test

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/plx-run/plx/internal/test/transporttest"
	"github.com/plx-run/plx/launcher/ssh"
	"github.com/plx-run/plx/launcher/transport"
)

func TestTransport(t *testing.T) {
	t.Parallel()
	server := startSSHD(t)
	home := newHome(t, server)
	transporttest.Run(t, func(t *testing.T) transport.Transport { return dial(t, server.config(home)) })
}

// needBash skips the test unless the user's login shell reads .bashrc.
func needBash(t *testing.T) {
	t.Helper()
	passwd := readFile(t, "/etc/passwd")
	prefix := fmt.Sprintf(":%d:", os.Getuid())
	for line := range strings.Lines(passwd) {
		fields := strings.Split(line, ":")
		if strings.Contains(line, prefix) && len(fields) == 7 && strings.HasSuffix(strings.TrimSpace(fields[6]), "bash") {
			return
		}
	}
	t.Skip("needs bash as login shell")
}

func TestStartUpOutputIsReportedOnce(t *testing.T) {
	needBash(t)
	server := startSSHD(t)
	writeFile(t, filepath.Join(server.home, ".bashrc"), "echo noise\n", 0o600)
	var notices syncBuffer
	cfg := server.config(newHome(t, server))
	cfg.Notice = func(line string) { fmt.Fprintln(&notices, line) }
	client := dial(t, cfg)
	for range 3 {
		if got := output(t, client, "echo own"); got != "own\n" {
			t.Errorf("stdout %q", got)
		}
	}
	if got := notices.String(); strings.Count(got, "\n") != 1 || !strings.Contains(got, "start-up file") {
		t.Errorf("notices %q, want one about a start-up file", got)
	}
}

func TestBrokenLoginShellIsReported(t *testing.T) {
	needBash(t)
	cases := map[string]string{
		"too much noise": "head -c 3000000 /dev/zero\n",
		"ends":           "echo 'this account is closed'; exit 1\n",
	}
	for name, bashrc := range cases {
		t.Run(name, func(t *testing.T) {
			server := startSSHD(t)
			writeFile(t, filepath.Join(server.home, ".bashrc"), bashrc, 0o600)
			client := dial(t, server.config(newHome(t, server)))
			err := client.Run(t.Context(), "echo own", nil, nil, nil)
			if err == nil || !strings.Contains(err.Error(), "login shell did not start") || hintOf(err) == "" {
				t.Errorf("run: %v, hint %q", err, hintOf(err))
			}
			if name == "ends" && !strings.Contains(err.Error(), "this account is closed") {
				t.Errorf("%v: what the shell printed is missing", err)
			}
		})
	}
}

// hintOf returns the hint in an error.
func hintOf(err error) string {
	var hinted interface{ Hint() string }
	if errors.As(err, &hinted) {
		return hinted.Hint()
	}
	return ""
}

// A server that refuses further sessions makes new commands wait until another
// session ends.
func TestServerSessionLimitIsRespected(t *testing.T) {
	server := startSSHD(t, "MaxSessions 2")
	cfg := server.config(newHome(t, server))
	var crowded atomic.Bool
	cfg.OnSessionRefused = func() { crowded.Store(true) }
	client := dial(t, cfg)
	var all sync.WaitGroup
	for i := range 12 {
		all.Go(func() {
			var stdout bytes.Buffer
			if err := client.Run(t.Context(), "sleep 0.05; echo done", nil, &stdout, nil); err != nil || stdout.String() != "done\n" {
				t.Errorf("run %d: %q, %v", i, stdout.String(), err)
			}
		})
	}
	all.Wait()
	if !crowded.Load() {
		t.Error("nobody was told that a session waits")
	}
}

// sshd drops connections beyond MaxStartups; plx retries them later.
func TestRetryUnderLoad(t *testing.T) {
	server := startSSHD(t, "MaxStartups 2:100:2")
	home := newHome(t, server)
	var all sync.WaitGroup
	for i := range 12 {
		all.Go(func() {
			client, err := ssh.Dial(t.Context(), server.config(home))
			if err != nil {
				t.Errorf("dial %d: %v", i, err)
				return
			}
			if err := client.Run(t.Context(), "true", nil, nil, nil); err != nil {
				t.Errorf("run %d: %v", i, err)
			}
			_ = client.Close() // the suite checks its error
		})
	}
	all.Wait()
	if !strings.Contains(server.log.String(), "MaxStartups") {
		t.Error("no connection was refused, so nothing was proved")
	}
}

func TestJumpHosts(t *testing.T) {
	servers := []*sshd{startSSHD(t), startSSHD(t), startSSHD(t)}
	home := newHome(t, servers...)
	var config strings.Builder
	for i, s := range servers {
		fmt.Fprintf(&config, "Host hop%d\nHostName 127.0.0.1\nPort %d\n", i, s.port)
	}
	fmt.Fprintf(&config, "Host end\nHostName 127.0.0.1\nPort %d\nProxyJump hop0,127.0.0.1:%d\n", servers[2].port, servers[1].port)
	writeFile(t, filepath.Join(home, ".ssh", "config"), config.String(), 0o600)
	t.Run("two hops", func(t *testing.T) {
		client := dial(t, ssh.Config{Host: "end", Home: home})
		want := []string{"127.0.0.1", fmt.Sprint(servers[2].port)}
		if got := strings.Fields(output(t, client, "echo $SSH_CONNECTION")); !slices.Equal(got[2:], want) {
			t.Errorf("reached %v, want %v", got, want)
		}
		if err := client.Close(); err != nil {
			t.Errorf("close: %v", err)
		}
	})
	t.Run("the key of a hop is checked", func(t *testing.T) {
		cfg := ssh.Config{Host: "end", Home: home, KnownHostsFile: filepath.Join(newHome(t, servers[0], servers[2]), ".ssh", "known_hosts")}
		_, err := ssh.Dial(t.Context(), cfg)
		var refused *ssh.HostKeyError
		if !errors.As(err, &refused) || refused.Address != servers[1].address() {
			t.Errorf("dial: %v, want a refusal of %s", err, servers[1].address())
		}
	})
}

// If the server cannot start sftp, only Copy fails; the connection stays
// usable.
func TestCopyToServerWithoutSFTP(t *testing.T) {
	server := startSSHD(t, "Subsystem sftp /bin/false")
	client := dial(t, server.config(newHome(t, server)))
	err := client.Copy(t.Context(), strings.NewReader("text"), t.TempDir()+"/file")
	if err == nil || !strings.Contains(err.Error(), "start sftp: ") || transport.IsLost(err) {
		t.Errorf("copy: %v", err)
	}
	if got := output(t, client, "echo fine"); got != "fine\n" {
		t.Errorf("got %q after the copy", got)
	}
}
