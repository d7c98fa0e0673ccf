package sshserver

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/pkg/sftp"
	gossh "golang.org/x/crypto/ssh"

	"github.com/plx-run/plx/internal/test/patience"
	"github.com/plx-run/plx/launcher/ssh"
)

// connect starts a server for one connection over loopback, and returns a
// client.
func connect(t *testing.T) *gossh.Client {
	t.Helper()
	t.Setenv("HOME", t.TempDir())
	key, err := ssh.GenerateKey()
	if err != nil {
		t.Fatal(err)
	}
	config := &gossh.ServerConfig{NoClientAuth: true}
	config.AddHostKey(key)
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	served := make(chan struct{})
	go func() {
		defer close(served)
		defer listener.Close()
		if conn, err := listener.Accept(); err == nil {
			Serve(conn, config)
		}
	}()
	client, err := gossh.Dial("tcp", listener.Addr().String(), &gossh.ClientConfig{HostKeyCallback: gossh.FixedHostKey(key.PublicKey())})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		client.Close()
		await(t, served, "the end of the connection")
	})
	return client
}

func open(t *testing.T, client *gossh.Client) *gossh.Session {
	t.Helper()
	session, err := client.NewSession()
	if err != nil {
		t.Fatal(err)
	}
	return session
}

func await(t *testing.T, event <-chan struct{}, what string) {
	t.Helper()
	select {
	case <-event:
	case <-time.After(patience.Limit):
		t.Errorf("waited %v for %s", patience.Limit, what)
	}
}

func TestExitStatusesAndSignals(t *testing.T) {
	client := connect(t)
	for command, want := range map[string]struct {
		status int
		signal string
	}{
		"exit 0":          {},
		"exit 3":          {status: 3},
		"exit 255":        {status: 255},
		"no-such-command": {status: 127},
		"kill -TERM $$":   {signal: "TERM"},
		"kill -KILL $$":   {signal: "KILL"},
	} {
		var status int
		var signal string
		err := open(t, client).Run(command)
		var exit *gossh.ExitError
		if errors.As(err, &exit) {
			status, signal, err = exit.ExitStatus(), exit.Signal(), nil
		}
		// for a signal, the SSH library computes an exit status as a shell
		// does
		if err != nil || signal != want.signal || signal == "" && status != want.status {
			t.Errorf("%s: status %d, signal %q, error %v; want %d, %q", command, status, signal, err, want.status, want.signal)
		}
	}
}

func TestStreams(t *testing.T) {
	session := open(t, connect(t))
	var stdout, stderr bytes.Buffer
	session.Stdin, session.Stdout, session.Stderr = strings.NewReader("sent"), &stdout, &stderr
	if err := session.Run("cat; echo problem >&2"); err != nil || stdout.String() != "sent" || stderr.String() != "problem\n" {
		t.Errorf("stdout %q, stderr %q, error %v", stdout.String(), stderr.String(), err)
	}
}

// A command runs in the home directory, in its own session, and with
// SSH_CONNECTION, as under sshd.
func TestCommandEnvironment(t *testing.T) {
	t.Setenv("SSH_CONNECTION", "that of an outer connection")
	t.Setenv("PLX_TEST_VALUE", "inherited")
	client := connect(t)
	home, err := filepath.EvalSymlinks(os.Getenv("HOME"))
	if err != nil {
		t.Fatal(err)
	}
	near, far := client.LocalAddr().(*net.TCPAddr), client.RemoteAddr().(*net.TCPAddr)
	want := fmt.Sprintf("%s\ninherited\n%v %d %v %d\nits own session\n", home, near.IP, near.Port, far.IP, far.Port)
	script := `pwd -P; echo "$PLX_TEST_VALUE"; echo "$SSH_CONNECTION"
		read -r pid _ _ _ _ session _ </proc/$$/stat; [ $pid = $session ] && echo its own session`
	if got, err := open(t, client).Output(script); err != nil || string(got) != want {
		t.Errorf("got %q, %v; want %q", got, err, want)
	}
}

// The server sends the exit status even if a background process holds the
// output open. That process can still read stdin and write output.
func TestExitStatusIsSentBeforeEndOfOutput(t *testing.T) {
	client := connect(t)
	channel, requests, err := client.OpenChannel("session", nil)
	if err != nil {
		t.Fatal(err)
	}
	exited := make(chan struct{})
	go func() {
		for request := range requests {
			if request.Type == "exit-status" && bytes.Equal(request.Payload, []byte{0, 0, 0, 3}) {
				close(exited)
			}
		}
	}()
	if ok, err := channel.SendRequest("exec", true, gossh.Marshal(struct{ Command string }{"exec 3<&0; cat <&3 & exit 3"})); !ok || err != nil {
		t.Fatalf("start: %v, %v", ok, err)
	}
	await(t, exited, "the exit status")
	if _, err := channel.Write([]byte("to the background")); err != nil {
		t.Fatal(err)
	}
	if err := channel.CloseWrite(); err != nil {
		t.Fatal(err)
	}
	if got, err := io.ReadAll(channel); err != nil || string(got) != "to the background" {
		t.Errorf("got %q, %v", got, err)
	}
}

// The server sends the end of the output when the command closes it, even if
// the command keeps running.
func TestEndOfOutputIsSentBeforeExitStatus(t *testing.T) {
	session := open(t, connect(t))
	stdin, err := session.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	stdout, err := session.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := session.Start("echo last; exec >&- 2>&-; read -r line; exit 3"); err != nil {
		t.Fatal(err)
	}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		if got, err := io.ReadAll(stdout); err != nil || string(got) != "last\n" {
			t.Errorf("got %q, %v", got, err)
		}
	}()
	await(t, ended, "the end of the output")
	if err := stdin.Close(); err != nil {
		t.Fatal(err)
	}
	var exit *gossh.ExitError
	if err := session.Wait(); !errors.As(err, &exit) || exit.ExitStatus() != 3 {
		t.Errorf("got %v, want status 3", err)
	}
}

// A command whose channel is closed keeps running: its stdin ends, and its
// writes fail.
func TestCommandOutlivesItsChannel(t *testing.T) {
	client := connect(t)
	file := filepath.Join(t.TempDir(), "after")
	session := open(t, client)
	stdout, err := session.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if _, err := session.StdinPipe(); err != nil {
		t.Fatal(err)
	}
	script := "trap '' PIPE; echo ready; cat >/dev/null; until ! echo more; do sleep 0.01; done 2>/dev/null; echo done >" + ssh.Quote(file)
	if err := session.Start(script); err != nil {
		t.Fatal(err)
	}
	if _, err := io.ReadFull(stdout, make([]byte, len("ready\n"))); err != nil {
		t.Fatal(err)
	}
	if err := session.Close(); err != nil {
		t.Fatal(err)
	}
	for end := time.Now().Add(patience.Limit); ; time.Sleep(10 * time.Millisecond) {
		if got, err := os.ReadFile(file); err == nil && string(got) == "done\n" {
			break
		}
		if time.Now().After(end) {
			t.Fatal("the command ended with its channel, or its streams did not")
		}
	}
}

// Like sshd, the server refuses an eleventh session until one of the ten open
// sessions has ended.
func TestSessionLimit(t *testing.T) {
	client := connect(t)
	var first gossh.Channel
	for i := range maxSessions {
		channel, requests, err := client.OpenChannel("session", nil)
		if err != nil {
			t.Fatalf("session %d: %v", i, err)
		}
		go gossh.DiscardRequests(requests)
		if i == 0 {
			first = channel
		}
	}
	isFull := func() bool {
		channel, requests, err := client.OpenChannel("session", nil)
		if err == nil {
			go gossh.DiscardRequests(requests)
			channel.Close()
			return false
		}
		var refused *gossh.OpenChannelError
		if !errors.As(err, &refused) || refused.Reason != gossh.ResourceShortage {
			t.Fatalf("got %v, want a refusal for lack of resources", err)
		}
		return true
	}
	if !isFull() {
		t.Errorf("the server opened more than %d sessions", maxSessions)
	}
	if err := first.Close(); err != nil {
		t.Fatal(err)
	}
	for end := time.Now().Add(patience.Limit); isFull(); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("no session was freed")
		}
	}
}

// After a refused request, the session can still run a command and the
// connection stays open.
func TestRefusedRequests(t *testing.T) {
	client := connect(t)
	if ok, _, err := client.SendRequest("keepalive@openssh.com", true, nil); ok || err != nil {
		t.Errorf("keepalive: %v, %v; want an answer, which refuses it", ok, err)
	}
	var refused *gossh.OpenChannelError
	if _, _, err := client.OpenChannel("direct-tcpip", nil); !errors.As(err, &refused) || refused.Reason != gossh.UnknownChannelType {
		t.Errorf("forwarding: %v", err)
	}
	channel, requests, err := client.OpenChannel("session", nil)
	if err != nil {
		t.Fatal(err)
	}
	go gossh.DiscardRequests(requests)
	text := func(s string) []byte { return gossh.Marshal(struct{ Text string }{s}) }
	for _, c := range []struct {
		request string
		payload []byte
		ok      bool
	}{
		{"pty-req", text("xterm"), false},
		{"shell", nil, false},
		{"subsystem", text("other"), false},
		{"exec", []byte{0, 0, 0, 9, 'l', 's'}, false}, // shorter than it says
		{"exec", text("echo fine"), true},
	} {
		if ok, err := channel.SendRequest(c.request, true, c.payload); ok != c.ok || err != nil {
			t.Errorf("%s %q: %v, %v; want %v", c.request, c.payload, ok, err, c.ok)
		}
	}
	if got, err := io.ReadAll(channel); err != nil || string(got) != "fine\n" {
		t.Errorf("got %q, %v", got, err)
	}
}

func TestSFTP(t *testing.T) {
	client := connect(t)
	files, err := sftp.NewClient(client)
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "file")
	file, err := files.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := file.Write([]byte("content")); err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(file.Close(), files.Close()); err != nil {
		t.Fatal(err)
	}
	if got, err := os.ReadFile(path); err != nil || string(got) != "content" {
		t.Errorf("got %q, %v", got, err)
	}
}
