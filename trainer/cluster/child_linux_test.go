package cluster

import (
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"strings"
	"testing"
)

// If an environment variable asks for it, the test binary runs as a task
// instead of running tests.
func TestMain(m *testing.M) {
	switch os.Getenv("CLUSTER_TEST_AS") {
	case "task":
		exit(beTask())
	case "grandchild":
		exit(beGrandchild())
	}
	os.Exit(m.Run())
}

func exit(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Exit(0)
}

// beTask opens the inherited sockets of the contract, serves one connection,
// and reports which sockets a program that it starts has inherited.
func beTask() error {
	c, ok, err := FromEnvironment(os.Getenv)
	if !ok || err != nil {
		return fmt.Errorf("contract: %v, %w", ok, err)
	}
	control, err := c.Control()
	if err != nil {
		return err
	}
	if err := control.Send(ControlMessage{Kind: Hello, Version: ControlVersion}); err != nil {
		return err
	}
	ln, err := c.Listener()
	if err != nil {
		return err
	}
	if _, err := c.Listener(); err == nil {
		return fmt.Errorf("the listener could be opened twice")
	}
	conn, err := ln.Accept()
	if err != nil {
		return err
	}
	if _, err := io.WriteString(conn, c.Task.String()); err != nil {
		return err
	}
	conn.Close()
	cmd := exec.Command("/proc/self/exe")
	cmd.Env = append(os.Environ(), "CLUSTER_TEST_AS=grandchild")
	said, err := cmd.CombinedOutput()
	if err != nil {
		return fmt.Errorf("grandchild: %w: %s", err, said)
	}
	if err := control.Send(ControlMessage{Kind: Heartbeat, Cause: string(said)}); err != nil {
		return err
	}
	m, err := control.Receive()
	if err != nil || m.Kind != Stop {
		return fmt.Errorf("got %+v, %w; want stop", m, err)
	}
	return control.Send(ControlMessage{Kind: Finished})
}

// beGrandchild runs with the task's environment variables and prints each
// socket that it has inherited.
func beGrandchild() error {
	fds, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		return err
	}
	for _, fd := range fds {
		if to, err := os.Readlink("/proc/self/fd/" + fd.Name()); err == nil && strings.HasPrefix(to, "socket:") {
			fmt.Println("socket", fd.Name())
		}
	}
	c, _, err := FromEnvironment(os.Getenv)
	if err != nil {
		return err
	}
	if _, err := c.Listener(); err == nil || !strings.Contains(err.Error(), "not an inherited socket") {
		fmt.Println("listener:", err)
	}
	if _, err := c.Control(); err == nil || !strings.Contains(err.Error(), "not an inherited socket") {
		fmt.Println("control:", err)
	}
	return nil
}

func TestTaskInheritsItsSockets(t *testing.T) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	addr := ln.Addr().String()
	listening, err := ln.(*net.TCPListener).File()
	if err != nil {
		t.Fatal(err)
	}
	control, theirs, err := ControlPair()
	if err != nil {
		t.Fatal(err)
	}
	defer control.Close()
	cmd := exec.Command("/proc/self/exe")
	cmd.ExtraFiles = []*os.File{listening, theirs}
	c := Contract{Job: "j", Task: Chief, WorldSize: 1, LocalWorldSize: 1, Cluster: Spec{Worker: []string{addr}},
		ListenFD: 3, ControlFD: 4, SecretFile: "none"}
	cmd.Env = append(append(os.Environ(), "CLUSTER_TEST_AS=task"), c.Environ()...)
	cmd.Stderr = os.Stderr
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	// The agent closes its own copy, so that only the task listens on the
	// port.
	ln.Close()
	listening.Close()
	theirs.Close()
	converse(t, control, addr)
	if err := cmd.Wait(); err != nil {
		t.Errorf("the task: %v", err)
	}
	if _, err := net.Dial("tcp", addr); err == nil {
		t.Error("the port is still open after the task's end")
	}
	if _, err := control.Receive(); err != io.EOF {
		t.Errorf("after the task's end: %v, want io.EOF", err)
	}
}

// converse plays the agent on the control channel and a peer at the task's
// address.
func converse(t *testing.T, control *Control, addr string) {
	t.Helper()
	next := func(kind ControlKind) ControlMessage {
		t.Helper()
		m, err := control.Receive()
		if err != nil || m.Kind != kind {
			t.Fatalf("got %+v, %v; want %s", m, err, kind)
		}
		return m
	}
	if hello := next(Hello); hello.Version != ControlVersion {
		t.Errorf("version %d", hello.Version)
	}
	conn, err := net.Dial("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if said, err := io.ReadAll(conn); err != nil || string(said) != "worker:0" {
		t.Errorf("the task's port says %q, %v", said, err)
	}
	if left := next(Heartbeat).Cause; left != "" {
		t.Errorf("a program that the task started has sockets of it:\n%s", left)
	}
	if err := control.Send(ControlMessage{Kind: Stop}); err != nil {
		t.Error(err)
	}
	next(Finished)
}

func TestMissingSocketsAreAnError(t *testing.T) {
	if _, err := (Contract{}).Listener(); err == nil || !strings.Contains(err.Error(), "PLX_LISTEN_FD is not set") {
		t.Errorf("listener: %v", err)
	}
	if _, err := (Contract{}).Control(); err == nil || !strings.Contains(err.Error(), "PLX_CONTROL_FD is not set") {
		t.Errorf("control: %v", err)
	}
	file, err := os.Open(os.DevNull)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	if _, err := (Contract{ListenFD: int(file.Fd())}).Listener(); err == nil {
		t.Error("a file that is no socket was taken")
	}
	if _, err := file.Stat(); err != nil {
		t.Errorf("a descriptor that is not ours was closed: %v", err)
	}
}
