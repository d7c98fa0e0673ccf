package embedded_test

import (
	"bytes"
	"context"
	"crypto/ed25519"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	gossh "golang.org/x/crypto/ssh"

	"github.com/plx-run/plx/internal/test/patience"
	"github.com/plx-run/plx/launcher/embedded"
	"github.com/plx-run/plx/launcher/ssh"
	"github.com/plx-run/plx/launcher/transport"
)

func output(t *testing.T, client *ssh.Client, command string) string {
	t.Helper()
	var stdout bytes.Buffer
	if err := client.Run(t.Context(), command, nil, &stdout, nil); err != nil {
		t.Fatalf("%s: %v", command, err)
	}
	return stdout.String()
}

func TestAddresses(t *testing.T) {
	home := t.TempDir()
	t.Setenv("HOME", home)
	t.Setenv("PLX_EMBEDDED_TEST", "inherited")
	cluster := start(t, 3)
	for i, cfg := range cluster.Configs() {
		ip := fmt.Sprintf("127.0.0.%d", i+2)
		client := dial(t, cfg)
		fields := strings.Fields(output(t, client, "echo $SSH_CONNECTION"))
		if cfg.Host != ip || len(fields) != 4 || fields[2] != ip || fields[3] != strconv.Itoa(cfg.Port) {
			t.Errorf("host %s, SSH_CONNECTION %v, want %s", cfg.Host, fields, ip)
		}
		if got, want := output(t, client, "pwd; echo $HOME $PLX_EMBEDDED_TEST"), home+"\n"+home+" inherited\n"; got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
}

func TestOtherKeysCannotLogIn(t *testing.T) {
	mine, theirs := start(t, 1).Configs()[0], start(t, 1).Configs()[0]
	stranger := mine
	stranger.Signers = theirs.Signers
	if _, err := ssh.Dial(t.Context(), stranger); err == nil || !strings.Contains(err.Error(), "login refused") {
		t.Errorf("dial with another key: %v", err)
	}
	impostor := mine
	impostor.HostKey = theirs.HostKey
	var refused *ssh.HostKeyError
	if _, err := ssh.Dial(t.Context(), impostor); !errors.As(err, &refused) || refused.Hint() != "" {
		t.Errorf("dial of another host key: %v", err)
	}
	for name, method := range map[string]gossh.AuthMethod{
		"none": nil, "password": gossh.Password(""), "a new key": gossh.PublicKeys(newSigner(t)),
	} {
		config := &gossh.ClientConfig{User: "plx", HostKeyCallback: gossh.FixedHostKey(mine.HostKey)}
		if method != nil {
			config.Auth = append(config.Auth, method)
		}
		client, err := gossh.Dial("tcp", net.JoinHostPort(mine.Host, strconv.Itoa(mine.Port)), config)
		if err == nil {
			t.Errorf("%s: logged in", name)
			_ = client.Close() // error ignored: the login should have failed
		}
	}
}

func newSigner(t *testing.T) gossh.Signer {
	t.Helper()
	_, private, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	signer, err := gossh.NewSignerFromKey(private)
	if err != nil {
		t.Fatal(err)
	}
	return signer
}

// The server accepts only sessions: no port forwarding and no terminals.
func TestServerRejectsForwardingAndTerminals(t *testing.T) {
	cfg := start(t, 1).Configs()[0]
	config := &gossh.ClientConfig{
		User: "plx", HostKeyCallback: gossh.FixedHostKey(cfg.HostKey), Auth: []gossh.AuthMethod{gossh.PublicKeys(cfg.Signers...)},
	}
	address := net.JoinHostPort(cfg.Host, strconv.Itoa(cfg.Port))
	client, err := gossh.Dial("tcp", address, config)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = client.Close() }() // the test is over
	if conn, err := client.Dial("tcp", address); err == nil {
		t.Errorf("forwarded to %v", conn.RemoteAddr())
	}
	session, err := client.NewSession()
	if err != nil {
		t.Fatal(err)
	}
	if session.RequestPty("xterm", 1, 1, nil) == nil || session.Shell() == nil || session.RequestSubsystem("other") == nil {
		t.Error("a terminal, a shell or an unknown subsystem was given")
	}
}

// As under sshd, a command keeps running after its channel and the cluster are
// closed; its streams are closed.
func TestCommandOutlivesCluster(t *testing.T) {
	cluster := start(t, 1)
	client := dial(t, cluster.Configs()[0])
	folder := t.TempDir()
	reader, writer := io.Pipe()
	defer func() { _ = writer.Close() }() // never fails
	started := make(chan struct{})
	ended := make(chan error, 1)
	go func() {
		// The script's stdin ends when the channel is closed.
		script := "cd " + ssh.Quote(folder) + "; echo $$; cat >/dev/null; echo alive >after; exec sleep 600"
		ended <- client.Run(context.Background(), script, reader, &pidWriter{folder: folder, started: started}, nil)
	}()
	await(t, started, "the start")
	begin := time.Now()
	if err := cluster.Close(); err != nil || time.Since(begin) > patience.Limit {
		t.Errorf("close: %v after %v", err, time.Since(begin))
	}
	var lost *transport.LostError
	if err := <-ended; !errors.As(err, &lost) {
		t.Errorf("run across close: %v, want a LostError", err)
	}
	awaitFile(t, filepath.Join(folder, "after"))
	pid, err := strconv.Atoi(strings.TrimSpace(readFile(t, filepath.Join(folder, "pid"))))
	if err != nil {
		t.Fatal(err)
	}
	if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
		t.Errorf("the command was gone: %v", err)
	}
	if err := cluster.Close(); err != nil {
		t.Errorf("second close: %v", err)
	}
}

// pidWriter keeps the first line written to it, which is a process id.
type pidWriter struct {
	folder  string
	started chan struct{}
}

func (w *pidWriter) Write(p []byte) (int, error) {
	defer close(w.started)
	return len(p), os.WriteFile(filepath.Join(w.folder, "pid"), p, 0o600)
}

func await(t *testing.T, c <-chan struct{}, what string) {
	t.Helper()
	select {
	case <-c:
	case <-time.After(patience.Limit):
		t.Fatalf("%s took more than %v", what, patience.Limit)
	}
}

func awaitFile(t *testing.T, path string) {
	t.Helper()
	for end := time.Now().Add(patience.Limit); time.Now().Before(end); time.Sleep(10 * time.Millisecond) {
		if _, err := os.Stat(path); err == nil {
			return
		}
	}
	t.Fatalf("%s did not appear", path)
}

func readFile(t *testing.T, path string) string {
	t.Helper()
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}

func TestStartRejects(t *testing.T) {
	for _, n := range []int{-1, 0, 513} {
		if cluster, err := embedded.Start(t.Context(), n); err == nil {
			t.Errorf("%d hosts were started", n)
			_ = cluster.Close() // error ignored: Start should have failed
		}
	}
}
