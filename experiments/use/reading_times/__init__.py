"""Do the models' surprisals predict how long people read a word?"""
