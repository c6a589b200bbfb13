//go:build !linux

package main

import "fmt"

func main() { fmt.Println("bench measures boxes of Linux; there are none here") }
