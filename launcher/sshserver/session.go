// Package sshserver is the server's side of SSH for plx's own hosts: those of an
// embedded cluster, and those that a command reaches (package via).
//
//	sshserver.Serve(conn, config)
//
// It behaves as sshd does where plx depends on it: a command outlives its channel, and exit
// statuses and signals are reported. Commands run as the user of this process, in its home
// and with its environment. It refuses terminals and forwarding, and it has no login
// shell and so no start-up files.
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
	maxSessions      = 10               // sessions of one connection, as sshd has it
	handshakeTimeout = 15 * time.Second // of one connection
)

// Serve handles one connection to its end.
func Serve(conn net.Conn, config *gossh.ServerConfig) {
	late := time.AfterFunc(handshakeTimeout, func() { _ = conn.Close() }) // a pipe has no deadlines
	inner, channels, requests, err := gossh.NewServerConn(conn, config)
	if !late.Stop() || err != nil {
		return // the protocol tells the client
	}
	var sessions sync.WaitGroup
	defer sessions.Wait()
	defer func() { _ = inner.Close() }()
	go gossh.DiscardRequests(requests) // answers keepalives; ends with the connection
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

// serveSession runs the one command or subsystem of a channel.
func serveSession(conn net.Conn, offered gossh.NewChannel) {
	channel, requests, err := offered.Accept()
	if err != nil {
		return // the connection has ended
	}
	defer func() { _ = channel.Close() }() // io.EOF when the client was first
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
		_ = request.Reply(ok, nil) // fails only when the connection has ended
	}
}

// serveFiles speaks sftp until the client closes the channel.
func serveFiles(channel gossh.Channel) {
	files, err := sftp.NewServer(channel) // plx asks for absolute paths only
	if err != nil {
		return
	}
	_ = files.Serve() // its error is how the client ended it
	_ = files.Close() // closes files that the client left open
}

// execute runs a command until it has exited and its output has ended, or the channel was
// closed. It never kills the process.
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
	defer func() { // the command's stdin ends, its output breaks
		for _, pipe := range []io.Closer{stdin, stdout, stderr} {
			_ = pipe.Close() // pipes have nothing to flush
		}
	}()
	reply(request, true)
	closed := make(chan struct{})
	go func() { // ends when the client or the connection closed the channel
		gossh.DiscardRequests(requests)
		close(closed)
	}()
	go func() {
		// It ends with the client's end of file, with the channel, or when the end of
		// execute breaks the write.
		_, _ = io.Copy(stdin, channel)
		_ = stdin.Close()
	}()
	var outputs sync.WaitGroup
	outputs.Go(func() { _, _ = io.Copy(channel, stdout) })
	outputs.Go(func() { _, _ = io.Copy(channel.Stderr(), stderr) })
	relay(channel, cmd.Process, &outputs, closed)
}

// relay sends the end of the output and the exit report, until both are sent or the
// channel is closed.
func relay(channel gossh.Channel, process *os.Process, outputs *sync.WaitGroup, closed <-chan struct{}) {
	drained, exited := make(chan struct{}), make(chan *os.ProcessState, 1)
	go func() {
		outputs.Wait()
		close(drained)
	}()
	go func() { // reaps, however long it takes
		state, _ := process.Wait() // not Wait of exec.Cmd, which closes the output
		exited <- state
	}()
	for waiting := exited; waiting != nil || drained != nil; {
		select {
		case state := <-waiting:
			report(channel, state)
			waiting = nil
		case <-drained:
			_ = channel.CloseWrite() // fails only when the channel is closed
			drained = nil
		case <-closed:
			return
		}
	}
}

// report sends the exit status or the signal. It fails only if the channel is closed.
func report(channel gossh.Channel, state *os.ProcessState) {
	if state == nil { // Wait failed
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

// connection is the value of SSH_CONNECTION: client, its port, server, its port.
func connection(conn net.Conn) string {
	client, clientPort, _ := strings.Cut(conn.RemoteAddr().String(), ":")
	server, serverPort, _ := strings.Cut(conn.LocalAddr().String(), ":")
	return strings.Join([]string{client, clientPort, server, serverPort}, " ")
}
