//go:build linux

package agent

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/plx-run/plx/internal/test/patience"
	"github.com/plx-run/plx/launcher/agent/sockets"
	"github.com/plx-run/plx/launcher/protocol"
)

// knock connects to an agent as a visitor, asks it to stop its job and prints
// the reply.
func knock(socket string) int {
	conn, err := net.Dial("unix", socket)
	if err != nil {
		fmt.Println(err)
		return 1
	}
	conn.SetDeadline(time.Now().Add(patience.Limit))
	answer, err := func() (protocol.Message, error) {
		c, err := protocol.Open(conn)
		if err != nil {
			return protocol.Message{}, err
		}
		if err := c.Send(protocol.Message{Attach: &protocol.Attach{}}); err != nil {
			return protocol.Message{}, err
		}
		return c.Receive()
	}()
	switch {
	case err != nil:
		fmt.Println("refused:", err)
	case answer.State != nil:
		fmt.Println("the state of", answer.State.Host)
	}
	return 0
}

// squat listens on a local socket, prints its name and waits for the end of
// its input.
func squat() int {
	ln, name, err := sockets.ListenLocal()
	if err != nil {
		fmt.Println(err)
		return 1
	}
	defer ln.Close()
	fmt.Println(name)
	io.Copy(io.Discard, os.Stdin)
	return 0
}

// as returns a command that runs the behavior how as another user.
func as(t *testing.T, uid uint32, how ...string) *exec.Cmd {
	t.Helper()
	cmd := exec.Command("/proc/self/exe", append([]string{"task"}, how...)...) // the path of the test binary is not accessible to other users
	cmd.Dir, cmd.Stderr = "/", os.Stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uid, Gid: uid}}
	return cmd
}

// An agent refuses another user's connections to its local socket, and does
// not talk to another user's socket.
func TestOtherUsersAreRefused(t *testing.T) {
	const nobody = 65534
	if os.Geteuid() != 0 {
		t.Skip("only root can become another user")
	}
	h, l, _ := ready(t, "wait")
	state, err := h.folder().ReadState()
	if err != nil {
		t.Fatal(err)
	}
	for uid, want := range map[uint32]string{0: "the state of gpu01", nobody: "refused: no plx agent answered: "} {
		out, err := as(t, uid, "knock", state.Socket).Output()
		if err != nil || !strings.HasPrefix(string(out), want) {
			t.Errorf("user %d hears %q, %v, want %q", uid, out, err, want)
		}
	}
	l.end(h, time.Second)

	for uid, want := range map[uint32]string{0: "", nobody: "the other end of the local socket runs as user 65534, this process as 0"} {
		cmd := as(t, uid, "squat")
		in, err := cmd.StdinPipe()
		if err != nil {
			t.Fatal(err)
		}
		out, err := cmd.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		name, err := bufio.NewReader(out).ReadString('\n')
		if err != nil {
			t.Fatal(err)
		}
		conn, err := sockets.DialLocal(t.Context(), strings.TrimSpace(name))
		if (err == nil) != (want == "") || err != nil && err.Error() != want {
			t.Errorf("a socket of user %d: %v, want %q", uid, err, want)
		}
		if err == nil {
			conn.Close()
		}
		in.Close()
		cmd.Wait()
	}
}
