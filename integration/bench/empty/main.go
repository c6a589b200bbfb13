// Command empty is the smallest Go program: what a start costs at least.
package main

func main() {}
