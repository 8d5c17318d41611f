"""Which tokens let a small model predict a text best in the same processor time?"""
