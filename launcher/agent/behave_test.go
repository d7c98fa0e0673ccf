//go:build linux

package agent

import (
	"bytes"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"os/signal"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/plx-run/plx/launcher/agent/process"
	"github.com/plx-run/plx/trainer/cluster"
)

// behave runs the behavior of a test's task with the given name.
func behave(how string, args []string) int {
	switch how {
	case "exit":
		code, _ := strconv.Atoi(args[0])
		return code
	case "signal":
		n, _ := strconv.Atoi(args[0])
		syscall.Kill(os.Getpid(), syscall.Signal(n))
		return hang()
	case "wait":
		fmt.Println("ready")
		return hang()
	case "say": // prints args to stdout, the last one to stderr
		for _, a := range args[:len(args)-1] {
			fmt.Println(a)
		}
		fmt.Fprint(os.Stderr, args[len(args)-1])
		fmt.Println("ready")
		return hang()
	case "events": // writes args[0], decoded from hex, into an event file and keeps the file open
		f, err := os.Create("events.out.tfevents.1." + args[1])
		if err == nil {
			_, err = io.Copy(f, hex.NewDecoder(strings.NewReader(args[0])))
		}
		if err != nil {
			fmt.Println(err)
			return 1
		}
		fmt.Println("ready")
		return hang()
	case "stubborn": // ignores SIGTERM, and starts a daemon that ignores it too
		signal.Ignore(unix.SIGTERM, unix.SIGHUP)
		if err := daemon("hidden"); err != nil {
			fmt.Println(err)
			return 1
		}
		fmt.Println("ready")
		return hang()
	case "hidden": // starts a second process and exits, which makes that process a daemon
		exe, _ := os.Executable()
		cmd := exec.Command(exe, "task", "ghost")
		cmd.Stdout = os.Stdout
		cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
		if err := cmd.Start(); err != nil {
			return 1
		}
		return 0
	case "ghost":
		signal.Ignore(unix.SIGTERM, unix.SIGHUP)
		fmt.Println("ghost")
		return hang()
	case "holder": // exits, but leaves a process that keeps its output open
		if err := daemon("hidden"); err != nil {
			return 1
		}
		return 0
	case "echo":
		return echo(args)
	case "flood":
		n, _ := strconv.Atoi(args[0])
		os.Stdout.Write(bytes.Repeat([]byte("0123456789abcde\n"), n/16))
		os.Stderr.Write(bytes.Repeat([]byte("e"), n))
		return 0
	case "native":
		return native(args)
	case "knock":
		return knock(args[0])
	case "squat":
		return squat()
	case "serve": // acts as a program without plx's trainer, and listens on its reserved port
		ln, err := net.Listen("tcp", net.JoinHostPort(os.Getenv("MASTER_ADDR"), os.Getenv("MASTER_PORT")))
		if err != nil {
			fmt.Println(err)
			return 1
		}
		fmt.Println("ready")
		ln.Accept()
		return 0
	}
	return 99
}

// hang waits for a signal. Without cgo, an empty select would make the runtime
// report a deadlock.
func hang() int {
	for {
		time.Sleep(time.Hour)
	}
}

// daemon starts a process in a new session whose parent exits at once.
func daemon(how string) error {
	exe, err := os.Executable()
	if err != nil {
		return err
	}
	cmd := exec.Command(exe, "task", how)
	cmd.Stdout = os.Stdout
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	return cmd.Run()
}

// seen is what the task "echo" prints.
type seen struct {
	Args     [][]byte
	Env      [][]byte
	Dir      string
	Argv0    string
	Session  bool
	Affinity []int
	FDs      []int
}

func echo(args []string) int {
	s := seen{Argv0: os.Args[0]}
	for _, a := range args {
		s.Args = append(s.Args, []byte(a))
	}
	for _, e := range os.Environ() {
		s.Env = append(s.Env, []byte(e))
	}
	s.Dir, _ = os.Getwd()
	sid, _ := unix.Getsid(0)
	s.Session = sid == os.Getpid()
	s.Affinity, _ = process.AllowedCores()
	for fd := range 1024 { // the usual limit
		if flags, err := unix.FcntlInt(uintptr(fd), unix.F_GETFD, 0); err == nil && flags&unix.FD_CLOEXEC == 0 {
			s.FDs = append(s.FDs, fd)
		}
	}
	json.NewEncoder(os.Stdout).Encode(s)
	return 0
}

// native is a task that uses the control channel as plx's trainer does. It
// executes the words in order.
func native(words []string) int {
	c, ok, err := cluster.FromEnvironment(os.Getenv)
	if err != nil || !ok {
		fmt.Println(ok, err)
		return 1
	}
	control, err := c.Control()
	if err != nil {
		fmt.Println(err)
		return 1
	}
	control.Send(cluster.ControlMessage{Kind: cluster.Hello, Version: cluster.ControlVersion})
	for _, w := range words {
		name, value, _ := strings.Cut(w, "=")
		switch name {
		case "beat":
			text, behind, _ := strings.Cut(value, "-")
			n, _ := strconv.ParseInt(text, 10, 64)
			from, _ := strconv.ParseInt(behind, 10, 64) // most begin at 0
			control.Send(cluster.ControlMessage{Kind: cluster.Heartbeat, Step: n, From: from})
		case "failed":
			control.Send(cluster.ControlMessage{Kind: cluster.Failed, Cause: value, Peer: "worker:1 on gpu02"})
		case "bears":
			control.Send(cluster.ControlMessage{Kind: cluster.ToleratesLoss})
		case "finished":
			control.Send(cluster.ControlMessage{Kind: cluster.Finished})
		case "listen":
			ln, err := c.Listener()
			if err != nil {
				fmt.Println(err)
				return 1
			}
			fmt.Println("ready")
			conn, err := ln.Accept()
			if err != nil {
				return 1
			}
			conn.Write([]byte("hello"))
			conn.Close()
		case "stop": // waits for a stop message on the control channel, ignores SIGTERM
			signal.Ignore(unix.SIGTERM)
			fmt.Println("ready")
			if m, err := control.Receive(); err != nil || m.Kind != cluster.Stop {
				return 1
			}
		case "save", "refuse": // waits for a checkpoint request and replies
			fmt.Println("ready")
			m, err := control.Receive()
			if err != nil || m.Kind != cluster.Checkpoint {
				return 1
			}
			answer := cluster.ControlMessage{Kind: cluster.Checkpoint, Request: m.Request, Cause: value}
			if name == "save" {
				answer.Cause = ""
				answer.Step, _ = strconv.ParseInt(value, 10, 64)
			}
			control.Send(answer)
		case "hold": // replies to a checkpoint request with Hold, and waits for Resume
			fmt.Println("ready")
			m, err := control.Receive()
			if err != nil || m.Kind != cluster.Checkpoint || !m.Hold {
				return 1
			}
			m.Step, _ = strconv.ParseInt(value, 10, 64)
			late := m
			late.Request--
			control.Send(late)
			control.Send(m)
			if m, err = control.Receive(); err != nil || m.Kind != cluster.Resume {
				return 1
			}
			fmt.Println("resumed")
		case "asked": // receives a checkpoint request and does not reply
			fmt.Println("ready")
			if m, err := control.Receive(); err != nil || m.Kind != cluster.Checkpoint {
				return 1
			}
		case "saved": // reports a checkpoint without a request
			control.Send(cluster.ControlMessage{Kind: cluster.Checkpoint, Step: 3})
		case "deaf": // stops reading the control channel
			fmt.Println("ready")
			return hang()
		case "beats": // sends heartbeats until it is killed
			fmt.Println("ready")
			for range time.Tick(200 * time.Millisecond) {
				control.Send(cluster.ControlMessage{Kind: cluster.Heartbeat})
			}
		case "exit":
			code, _ := strconv.Atoi(value)
			return code
		}
	}
	return 0
}
