// Package sshserver is an SSH server for hosts that run no sshd for plx: the
// simulated hosts of an embedded cluster, and hosts that a user's command
// reaches (package via).
//
//	sshserver.Serve(conn, config)
//
// Like sshd, it lets a command outlive its channel and reports exit statuses
// and signals. Commands run as the user of this process, in that user's home
// directory and with the environment of this process. The server refuses
// terminals and forwarding. It starts no login shell, so no start-up files
// run.
package sshserver

import (
	"cmp"
	"errors"
	"io"
	"net"
	"os"
	"os/exec"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/pkg/sftp"
	gossh "golang.org/x/crypto/ssh"
	"golang.org/x/sys/unix"

	"github.com/plx-run/plx/launcher/ssh"
)

const (
	maxSessions      = 10               // limit for one connection, as in sshd's default MaxSessions
	handshakeTimeout = 15 * time.Second // limit for the handshake of one connection
)

// Serve runs the SSH server on one connection until the connection ends.
func Serve(conn net.Conn, config *gossh.ServerConfig) {
	// A timer limits the handshake, since a connection over a pipe has no
	// deadlines.
	late := time.AfterFunc(handshakeTimeout, func() { _ = conn.Close() })
	inner, channels, requests, err := gossh.NewServerConn(conn, config)
	if !late.Stop() || err != nil {
		return // the SSH protocol has reported the error to the client
	}
	var sessions sync.WaitGroup
	defer sessions.Wait()
	defer func() { _ = inner.Close() }()
	go gossh.DiscardRequests(requests) // answers keepalive requests until the connection ends
	open := make(chan struct{}, maxSessions)
	for channel := range channels {
		if channel.ChannelType() != "session" {
			_ = channel.Reject(gossh.UnknownChannelType, "only sessions")
			continue
		}
		select {
		case open <- struct{}{}:
			sessions.Go(func() {
				defer func() { <-open }()
				serveSession(conn, channel)
			})
		default:
			_ = channel.Reject(gossh.ResourceShortage, "open failed")
		}
	}
}

// serveSession accepts a session channel and runs the command, or the sftp
// subsystem, that the client requests on it.
func serveSession(conn net.Conn, offered gossh.NewChannel) {
	channel, requests, err := offered.Accept()
	if err != nil {
		return // the connection has ended
	}
	defer func() { _ = channel.Close() }() // returns io.EOF if the client closed the channel first
	for request := range requests {
		var argument struct{ Value string }
		known := request.Type == "exec" || request.Type == "subsystem"
		if !known || gossh.Unmarshal(request.Payload, &argument) != nil ||
			(request.Type == "subsystem" && argument.Value != "sftp") {
			reply(request, false)
			continue
		}
		if request.Type == "subsystem" {
			reply(request, true)
			go gossh.DiscardRequests(requests)
			serveFiles(channel)
			return
		}
		execute(conn, channel, request, requests, argument.Value)
		return
	}
}

func reply(request *gossh.Request, ok bool) {
	if request.WantReply {
		_ = request.Reply(ok, nil) // an error means that the connection has ended
	}
}

// serveFiles runs an SFTP server on the channel until the client closes the
// channel.
func serveFiles(channel gossh.Channel) {
	files, err := sftp.NewServer(channel) // without a working directory: plx sends only absolute paths
	if err != nil {
		return
	}
	_ = files.Serve() // the error reports only how the client closed the channel
	_ = files.Close() // closes files that the client left open
}

// execute runs a command. It returns when the command has exited and its
// output has ended, or when the channel is closed. It never kills the command.
func execute(conn net.Conn, channel gossh.Channel, request *gossh.Request, requests <-chan *gossh.Request, command string) {
	cmd := exec.Command("/bin/sh", "-c", command)
	home := os.Getenv("HOME")
	if info, err := os.Stat(home); err == nil && info.IsDir() {
		cmd.Dir = home
	}
	if _, tcp := conn.RemoteAddr().(*net.TCPAddr); tcp {
		cmd.Env = append(os.Environ(), "SSH_CONNECTION="+connection(conn))
	}
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	stdin, errIn := cmd.StdinPipe()
	stdout, errOut := cmd.StdoutPipe()
	stderr, errErr := cmd.StderrPipe()
	err := errors.Join(errIn, errOut, errErr)
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		reply(request, false)
		return
	}
	defer func() { // close stdin, and make further writes of the command fail
		for _, pipe := range []io.Closer{stdin, stdout, stderr} {
			_ = pipe.Close() // an error of closing a pipe loses no data
		}
	}()
	reply(request, true)
	closed := make(chan struct{})
	go func() { // This goroutine returns when the client or the connection has closed the channel.
		gossh.DiscardRequests(requests)
		close(closed)
	}()
	go func() {
		// The copy ends when the client sends EOF, when the channel closes, or
		// when execute returns and closes stdin.
		_, _ = io.Copy(stdin, channel)
		_ = stdin.Close()
	}()
	var outputs sync.WaitGroup
	outputs.Go(func() { _, _ = io.Copy(channel, stdout) })
	outputs.Go(func() { _, _ = io.Copy(channel.Stderr(), stderr) })
	relay(channel, cmd.Process, &outputs, closed)
}

// relay reports the end of the output and the exit status of process to the
// client. It returns when both are sent or the channel is closed.
func relay(channel gossh.Channel, process *os.Process, outputs *sync.WaitGroup, closed <-chan struct{}) {
	drained, exited := make(chan struct{}), make(chan *os.ProcessState, 1)
	go func() {
		outputs.Wait()
		close(drained)
	}()
	go func() { // This goroutine reaps the process, even after relay has returned.
		state, _ := process.Wait() // Do not use exec.Cmd.Wait: it would close the output pipe, which is still being read.
		exited <- state
	}()
	for waiting := exited; waiting != nil || drained != nil; {
		select {
		case state := <-waiting:
			report(channel, state)
			waiting = nil
		case <-drained:
			_ = channel.CloseWrite() // an error means that the channel is closed
			drained = nil
		case <-closed:
			return
		}
	}
}

// report sends the exit status of a command, or the signal that killed it, to
// the client. Errors are ignored, because they occur only if the channel is
// closed.
func report(channel gossh.Channel, state *os.ProcessState) {
	if state == nil { // Wait failed, so the status is unknown
		_, _ = channel.SendRequest("exit-status", false, gossh.Marshal(struct{ Status uint32 }{255}))
		return
	}
	if status, is := state.Sys().(syscall.WaitStatus); is && status.Signaled() {
		name := cmp.Or(strings.TrimPrefix(unix.SignalName(status.Signal()), "SIG"), "UNKNOWN")
		_, _ = channel.SendRequest("exit-signal", false, gossh.Marshal(ssh.ExitSignal{Name: name, CoreDumped: status.CoreDump()}))
		return
	}
	_, _ = channel.SendRequest("exit-status", false, gossh.Marshal(struct{ Status uint32 }{uint32(state.ExitCode())}))
}

// connection returns the value of SSH_CONNECTION: client address, client port,
// server address and server port.
func connection(conn net.Conn) string {
	client, clientPort, _ := strings.Cut(conn.RemoteAddr().String(), ":")
	server, serverPort, _ := strings.Cut(conn.LocalAddr().String(), ":")
	return strings.Join([]string{client, clientPort, server, serverPort}, " ")
}
