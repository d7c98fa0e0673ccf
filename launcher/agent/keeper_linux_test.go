package agent

import (
	"fmt"
	"net"
	"os"
	"strings"

	"github.com/plx-run/plx/trainer/cluster"
)

// keeper is a task whose process can be that of one generation after the other.
// In each it prints who it is, and says hello to whoever connects. "lost" has
// it fail for want of a peer, "deaf" has it hear of no next generation, "tells" has
// it say how far it was when it gives one up.
func keeper(words []string) int {
	c, _, err := cluster.FromEnvironment(os.Getenv)
	if err != nil {
		fmt.Println(err)
		return 1
	}
	control, err := c.Control()
	if err != nil {
		return 1
	}
	control.Send(cluster.ControlMessage{Kind: cluster.Hello, Version: cluster.ControlVersion, Keeps: true})
	ln, err := c.Listener()
	for {
		if err != nil {
			fmt.Println(err)
			return 1
		}
		go greetAll(ln)
		dir, _ := os.Getwd()
		fmt.Printf("%s %d in %s\n", c.Task, c.Generation, dir[strings.LastIndexByte(dir, '/')+1:])
		if strings.Join(words, " ") == "lost" {
			control.Send(cluster.ControlMessage{Kind: cluster.Failed, Cause: "lost", Peer: "worker:9", Keeps: true})
		}
		m, err := control.Receive()
		ln.Close()
		if err != nil || m.Kind != cluster.Regroup {
			return 7
		}
		if strings.Join(words, " ") == "deaf" {
			fmt.Println("deaf")
			select {}
		}
		if strings.Join(words, " ") == "tells" {
			control.Send(cluster.ControlMessage{Kind: cluster.Heartbeat, Step: 6, From: 4, Groups: 2, Group: 1})
			control.Send(cluster.ControlMessage{Kind: cluster.Heartbeat, Step: 7, From: 4, Groups: 2, Group: 1, Last: true})
		}
		control.Send(cluster.ControlMessage{Kind: cluster.Waiting})
		if c, ln, err = nextLife(control); err == errTold {
			return 8
		}
	}
}

var errTold = fmt.Errorf("told to end")

func nextLife(control *cluster.Control) (c cluster.Contract, ln net.Listener, err error) {
	m, socket, err := control.ReceiveSocket()
	if err != nil || m.Kind != cluster.Begin {
		return c, nil, errTold
	}
	for _, pair := range m.Next.Environ {
		name, value, _ := strings.Cut(string(pair), "=")
		os.Setenv(name, value)
	}
	if err := os.Chdir(string(m.Next.Dir)); err != nil {
		return c, nil, err
	}
	if c, _, err = cluster.FromEnvironment(os.Getenv); err != nil {
		return c, nil, err
	}
	ln, err = net.FileListener(socket)
	socket.Close()
	return c, ln, err
}

func greetAll(ln net.Listener) {
	for {
		conn, err := ln.Accept()
		if err != nil {
			return
		}
		conn.Write([]byte("hello"))
		conn.Close()
	}
}
