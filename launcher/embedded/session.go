package embedded

import (
	"errors"
	"io"
	"net"
	"os"
	"os/exec"
	"strings"
	"sync"
	"syscall"

	"github.com/pkg/sftp"
	gossh "golang.org/x/crypto/ssh"
	"golang.org/x/sys/unix"
)

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
	var options []sftp.ServerOption
	if home := homeFolder(); home != "" {
		options = append(options, sftp.WithServerWorkingDirectory(home))
	}
	files, err := sftp.NewServer(channel, options...)
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
	cmd.Dir = homeFolder()
	cmd.Env = append(os.Environ(), "SSH_CONNECTION="+connection(conn))
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	pipes, err := newPipes(cmd)
	if err == nil {
		err = cmd.Start()
		pipes.closeTheirs()
	}
	if err != nil {
		pipes.close()
		reply(request, false)
		return
	}
	reply(request, true)
	closed := make(chan struct{})
	go func() { // ends when the client or the connection closed the channel
		gossh.DiscardRequests(requests)
		close(closed)
	}()
	relay(channel, cmd, pipes, closed)
}

// relay moves the streams and sends the exit report.
func relay(channel gossh.Channel, cmd *exec.Cmd, pipes *pipes, closed <-chan struct{}) {
	defer pipes.close() // the command's stdin ends, its output breaks
	go func() {
		// It ends with the client's end of file, with the channel, or when pipes.close
		// breaks the write.
		_, _ = io.Copy(pipes.stdin, channel)
		_ = pipes.stdin.Close()
	}()
	var outputs sync.WaitGroup
	outputs.Go(func() { _, _ = io.Copy(channel, pipes.stdout) })
	outputs.Go(func() { _, _ = io.Copy(channel.Stderr(), pipes.stderr) })
	drained, exited := make(chan struct{}), make(chan error, 1)
	go func() {
		outputs.Wait()
		close(drained)
	}()
	go func() { exited <- cmd.Wait() }() // reaps, however long it takes

	for waiting := exited; waiting != nil || drained != nil; {
		select {
		case err := <-waiting:
			report(channel, err)
			waiting = nil
		case <-drained:
			_ = channel.CloseWrite() // fails only when the channel is closed
			drained = nil
		case <-closed:
			return
		}
	}
}

// report sends the exit status or the signal.
func report(channel gossh.Channel, err error) {
	var exit *exec.ExitError
	if !errors.As(err, &exit) {
		status := uint32(0)
		if err != nil {
			status = 255
		}
		sendStatus(channel, status)
		return
	}
	if status, is := exit.Sys().(syscall.WaitStatus); is && status.Signaled() {
		message := struct {
			Name       string
			CoreDumped bool
			Message    string
			Language   string
		}{Name: signalName(status.Signal()), CoreDumped: status.CoreDump()}
		_, _ = channel.SendRequest("exit-signal", false, gossh.Marshal(message))
		return
	}
	sendStatus(channel, uint32(exit.ExitCode()))
}

// sendStatus sends the exit status. It fails only if the channel is closed.
func sendStatus(channel gossh.Channel, status uint32) {
	_, _ = channel.SendRequest("exit-status", false, gossh.Marshal(struct{ Status uint32 }{status}))
}

func homeFolder() string {
	home := os.Getenv("HOME")
	if info, err := os.Stat(home); err != nil || !info.IsDir() {
		return ""
	}
	return home
}

// connection is the value of SSH_CONNECTION: client, its port, server, its port.
func connection(conn net.Conn) string {
	client, clientPort, _ := strings.Cut(conn.RemoteAddr().String(), ":")
	server, serverPort, _ := strings.Cut(conn.LocalAddr().String(), ":")
	return strings.Join([]string{client, clientPort, server, serverPort}, " ")
}

// pipes are a command's three streams. The pipes of exec.Cmd would make Wait wait for every
// process that holds them.
type pipes struct {
	stdin, stdout, stderr *os.File
	theirs                []*os.File
}

func newPipes(cmd *exec.Cmd) (*pipes, error) {
	p := &pipes{}
	read, write, err := os.Pipe()
	if err != nil {
		return p, err
	}
	p.stdin, cmd.Stdin, p.theirs = write, read, append(p.theirs, read)
	read, write, err = os.Pipe()
	if err != nil {
		return p, err
	}
	p.stdout, cmd.Stdout, p.theirs = read, write, append(p.theirs, write)
	read, write, err = os.Pipe()
	if err != nil {
		return p, err
	}
	p.stderr, cmd.Stderr, p.theirs = read, write, append(p.theirs, write)
	return p, nil
}

// closeTheirs closes the command's ends in this process.
func (p *pipes) closeTheirs() {
	for _, file := range p.theirs {
		_ = file.Close() // the command has its own copy
	}
}

// close closes both ends; those closed before do not mind.
func (p *pipes) close() {
	p.closeTheirs()
	for _, file := range []*os.File{p.stdin, p.stdout, p.stderr} {
		if file != nil {
			_ = file.Close() // pipes have nothing to flush
		}
	}
}

// signalName returns the name without SIG, as the protocol has it.
func signalName(signal os.Signal) string {
	number, is := signal.(unix.Signal)
	if name := unix.SignalName(number); is && len(name) > 3 {
		return name[3:]
	}
	return "UNKNOWN"
}
