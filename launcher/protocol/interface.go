package protocol

// Interface is a network interface of a host.
type Interface struct {
	Name     string   `json:"name"`
	Up       bool     `json:"up"`       // true if the interface is enabled (ip link set up)
	Running  bool     `json:"running"`  // true if the link has a carrier, such as a plugged-in cable
	Loopback bool     `json:"loopback"` // true for a loopback interface, which reaches only this host
	MTU      int      `json:"mtu"`      // largest packet in bytes
	Speed    int      `json:"speed"`    // hardware speed in Mbit/s; 0 if unknown or if the interface has no fixed speed
	Addrs    []string `json:"addrs"`    // IP addresses with prefix length, such as 10.0.0.1/24
}
