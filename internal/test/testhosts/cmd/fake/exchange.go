package main

import (
	"fmt"
	"net"
	"os"
	"strconv"
	"time"
)

// exchange makes steps without plx's trainer. Before each step, every rank
// sends one byte to rank 0 and receives one byte from rank 0.
func exchange() error {
	rank, err1 := strconv.Atoi(os.Getenv("RANK"))
	world, err2 := strconv.Atoi(os.Getenv("WORLD_SIZE"))
	if err1 != nil || err2 != nil {
		return fmt.Errorf("RANK %q of WORLD_SIZE %q", os.Getenv("RANK"), os.Getenv("WORLD_SIZE"))
	}
	go func() { // A ticking goroutine never blocks for good. Without one, the Go runtime would end the program when all goroutines are blocked.
		for range time.Tick(time.Second) {
			continue
		}
	}()
	peers, err := connect(net.JoinHostPort(os.Getenv("MASTER_ADDR"), os.Getenv("MASTER_PORT")), rank, world)
	if err != nil {
		return err
	}
	for n := range *steps {
		if err := step(n, rank == world-1); err != nil {
			return err
		}
		if err := meet(peers, rank == 0); err != nil {
			return err
		}
		if rank == 0 {
			fmt.Printf("step %d\n", n)
		}
	}
	return nil
}

// connect returns the connection to rank 0; on rank 0, it returns the
// connections to all other ranks.
func connect(addr string, rank, world int) (peers []net.Conn, err error) {
	if rank > 0 {
		for range 1000 {
			c, err := net.Dial("tcp", addr)
			if err == nil {
				return []net.Conn{c}, nil
			}
			time.Sleep(20 * time.Millisecond)
		}
		return nil, fmt.Errorf("no answer at %s", addr)
	}
	l, err := net.Listen("tcp", addr)
	for len(peers) < world-1 && err == nil {
		var c net.Conn
		c, err = l.Accept()
		peers = append(peers, c)
	}
	return peers, err
}

// meet is a barrier: it returns after all ranks have called it. first is true
// on rank 0.
func meet(peers []net.Conn, first bool) error {
	var b [1]byte
	for i := range 2 {
		for _, c := range peers {
			pass := c.Write
			if first == (i == 0) {
				pass = c.Read
			}
			if _, err := pass(b[:]); err != nil {
				return err
			}
		}
	}
	return nil
}
